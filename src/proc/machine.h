/* The machine around a job: memory, pressure, and the limit that would kill it. */
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

/* The limit that will be hit first: of every ancestor cgroup's limit (v1, v2 max and high,
 * hybrid), host memory and the process's rlimits the one with the least head-room, which need
 * not be the smallest. USED is what is charged against that very limit, less reclaimable memory
 * (limit_reclaimable); HEADROOM what is left until it kills. Free swap is no head-room: a job that
 * lives in swap does not train. */
struct machine_limit {
    enum limit_kind kind;
    bool soft; /* memory.high: throttles, does not kill */
    uint64_t limit_bytes;
    bool used_known; /* false: HEADROOM is the whole limit, at most */
    uint64_t used_bytes;
    bool peak_known; /* the cgroup's own peak; file cache counts in it */
    uint64_t peak_bytes;
    uint64_t headroom_bytes;
    char where[256]; /* the cgroup path, the rlimit's name or "host", raw */
};

struct machine; /* kept fds of meminfo, PSI and the cgroup files */

/* For the job of PID (its cgroup, its rlimits; 0: our own). Absent files are simply not read
 * later. ROOT's fds must outlive it. */
int machine_new(const struct proc_root *root, int32_t pid, struct machine **ret);
void machine_free(struct machine *m); /* NULL is fine */
/* Reads meminfo, PSI and the limit into S (MACHINE_TOTAL to MACHINE_LIMIT_PEAK; the tree's fields
 * are left alone). Called every tick: a few preads. What can be had is put even on failure. */
int machine_tick(struct machine *m, struct sample *s);
/* AnonPages + Mapped at the last tick: every mapped page of the machine, once. 0: not known. */
uint64_t machine_mapped_bytes(const struct machine *m);
/* Looks at all limits anew (opens files; every 30 s is plenty): the one that binds now, and that
 * machine_tick follows from here on. After PID's death its last cgroups are judged. -ENODATA:
 * not even meminfo. RET may be NULL. */
int machine_limit(struct machine *m, struct machine_limit *ret);
/* The folder of the limit that binds, below root's cgroup_fd; "" if it is none of a cgroup. */
const char *machine_limit_dir(const struct machine *m);
/* An fd that polls EPOLLPRI when memory stalls reach STALL_US in WINDOW_US; -errno where the
 * kernel or our rights do not give one (-EINVAL: without CAP_SYS_RESOURCE the window must be a
 * multiple of 2 s). POLLERR means gone. The caller closes it. */
enum { MACHINE_STALL_MS = 150, MACHINE_WINDOW_MS = 2000 }; /* what the engine asks for */
int machine_psi_trigger(const struct proc_root *root, uint32_t stall_us, uint32_t window_us);

const char *limit_kind_name(enum limit_kind kind); /* "host memory", "cgroup v1", "RLIMIT_AS"… */
