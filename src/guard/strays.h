/* What is left of a job when its supervisor and its sentinel are both gone: processes that are
 * nobody's children any more, known by what only they have. */
#pragma once

#include <stdint.h>

#include "proc/procfs.h"

struct stray_signs {
    const char *run_dir; /* EBB_RUN_DIR of the environment they were started with */
    const char *cgroup;  /* name of the job's own group, as of guard_cgroup_name; "" none */
};

/* Signals every living process that has one of the signs or descends from one that has; never the
 * calling one. Returns how many, or -EXDEV (proc_root_is_foreign), -errno. */
int guard_signal_strays(const struct proc_root *root, const struct stray_signs *signs, int signo);

/* SIGTERM, up to GRACE_NS, then SIGKILL again and again until none is left, or some seconds are
 * over: one that the kernel does not let go is not waited for. Returns how many got SIGTERM. */
int guard_end_strays(const struct proc_root *root, const struct stray_signs *signs,
                     uint64_t grace_ns);
