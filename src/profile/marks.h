/* Collects marks while a run is read: those needed to judge growth at call sites, the reports of
 * growing containers, and cleanups. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "profile/growth.h"
#include "profile/kept.h"
#include "run/run.h"

struct err;

/* Totals of the Python package's MemoryCleanup since the last start or restart of the job. */
struct marks_cleanup {
    uint64_t count;
    double freed_bytes, cost_s;
};

struct marks {
    struct run_observer observer; /* argument for run_read */
    struct mark *at;              /* marks used by verdicts, without their text */
    size_t count, cap;
    bool has_failed; /* true after an allocation failed */
    struct kept_lists kept;
    struct marks_cleanup cleanup;
};

void marks_init(struct marks *m);
void marks_fini(struct marks *m); /* frees the marks; accepts a zeroed struct */
/* Returns marks at or after SINCE_NS (monotonic). If process PID sent steps, returns only its
 * marks, otherwise the marks of all processes. The caller frees *RET. Returns 0 or -ENOMEM. */
int marks_of(const struct marks *m, int32_t pid, uint64_t since_ns, struct growth_mark **ret,
             size_t *ret_count, struct err *err);
