/* What the marks of a run report besides time: the marks by which growth at call sites is judged,
 * containers that gain entries, and cleanups. Gathered by an observer while the run is read. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "profile/growth.h"
#include "profile/kept.h"
#include "run/run.h"

struct err;

/* Measured by MemoryCleanup of the Python package, summed up over the last segment. */
struct marks_cleanup {
    uint64_t count;
    double freed_bytes, cost_s;
};

struct marks {
    struct run_observer observer; /* for run_read */
    struct mark *at;              /* those that a verdict is made of; without their text */
    size_t count, cap;
    bool has_failed; /* out of memory */
    struct kept_lists kept;
    struct marks_cleanup cleanup;
};

void marks_init(struct marks *m);
void marks_fini(struct marks *m); /* accepts a zeroed one */
/* The marks at or after SINCE_NS (monotonic): those of process PID where it sent steps, else all.
 * *RET is the caller's to free. 0 or -ENOMEM. */
int marks_of(const struct marks *m, int32_t pid, uint64_t since_ns, struct growth_mark **ret,
             size_t *ret_count, struct err *err);
/* Of the recording at PATH (a run folder or its file); M is initialized. One that cannot be read
 * has no marks. */
void marks_read(const char *path, struct marks *ret);
