/* The state of the job's machine: memory, pressure, and the effective limit. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "proc/procfs.h"
#include "proc/sample.h"

struct err;

enum limit_kind {
    LIMIT_HOST,
    LIMIT_CGROUP_V1,
    LIMIT_CGROUP_V2,
    LIMIT_RLIMIT_AS,
    LIMIT_RLIMIT_DATA
};

/* The effective limit is the limit with the least headroom, which is not always the smallest limit.
 * The candidates are the limits of all ancestor cgroups (v1, v2 max and high, hybrid), host memory
 * and the process's rlimits. USED is the charge against the effective limit minus reclaimable
 * memory (limit_reclaimable). Free swap is not included in the headroom, because a job that swaps
 * makes no progress. */
struct machine_limit {
    enum limit_kind kind;
    /* the limit is memory.high: above it, the kernel throttles the job instead of killing it */
    bool soft;
    uint64_t limit_bytes;
    bool used_known; /* if USED is unknown, the headroom is the whole limit */
    uint64_t used_bytes;
    /* PEAK is the cgroup's own peak and includes file cache */
    bool peak_known;
    uint64_t peak_bytes;
    uint64_t headroom_bytes;
    char where[256]; /* cgroup path, name of the rlimit, or "host"; not escaped */
};

struct machine; /* a reader that has meminfo, PSI and the cgroup files open */

/* Creates a reader for the cgroup and the rlimits of PID (0: this process). Missing files are
 * skipped. ROOT's fds must outlive the result. */
int machine_new(const struct proc_root *root, int32_t pid, struct machine **ret);
void machine_free(struct machine *m); /* M may be NULL */
/* Reads meminfo, PSI and the limit into the fields MACHINE_TOTAL to MACHINE_LIMIT_PEAK of S, with a
 * few preads. Does not change the fields of the process tree. Call it at every tick. Values that
 * could be read are set even on failure. */
int machine_tick(struct machine *m, struct sample *s);
/* Returns AnonPages + Mapped at the last tick: all mapped pages of the machine, each counted once.
 * 0 if unknown. */
uint64_t machine_mapped_bytes(const struct machine *m);
/* Checks all limits again and returns the effective limit, which machine_tick reads from now on.
 * Checking opens files, so one call every 30 s is enough. After PID has exited, checks the limits
 * of the cgroups to which it belonged last. Returns -ENODATA if not even meminfo can be read. RET
 * may be NULL. */
int machine_limit(struct machine *m, struct machine_limit *ret);
/* Returns the cgroup folder that has the effective limit, as a path below root's cgroup_fd. Returns
 * "" if the limit is not that of a cgroup. */
const char *machine_limit_dir(const struct machine *m);
const char *limit_kind_name(enum limit_kind kind); /* "host memory", "cgroup v1", "RLIMIT_AS"… */
