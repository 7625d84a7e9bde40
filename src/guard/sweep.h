/* Ending processes of the job and no others: by pidfd, checked against (pid, start time) or
 * against being our own descendant. The only code that signals what it did not start itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/procfs.h"
#include "proc/sample.h"

/* Where /proc is of another pid namespace (proc_root_is_foreign) its numbers would name strangers:
 * nothing is signalled then, and all of these return -EXDEV at once. A caller that knows a child
 * of its own can still end that one by kill(). */

/* Signals exactly that process: 0, -ESRCH when it is gone or its pid belongs to another by now. */
int guard_signal(const struct proc_root *root, const struct process_id *id, int signo);

/* Signals the process group of the process that LEADER_FD, a pidfd, means or meant, at once and
 * with whatever a member is forking. As long as the group has a member it is the same group, also
 * when its leader is gone. 0, -ESRCH: it has none, -EINVAL: the kernel is older than 6.9. */
int guard_signal_group(int leader_fd, int signo);

/* Signals every living descendant of PARENT (not itself); with PGRP above 0 only those of that
 * process group. Only the caller or a child of it may be PARENT, so that what is below is ours.
 * Returns how many were signalled. */
int guard_signal_below(const struct proc_root *root, int32_t parent, int32_t pgrp, int signo);

/* How far the killing of a set of processes has come; zeroed at first. */
struct guard_kill {
    struct found *seen; /* by the last scan, ordered by pid */
    size_t count;
    unsigned stops;      /* scans since the last SIGKILL, all of which found new processes */
    uint64_t changed_ns; /* when the set was last another one */
    uint64_t wait_ns;    /* how long to wait before the next call */
};

/* Ends everything below the calling process, which must be a subreaper, by force: works until REAP
 * says that no child is left, UNTIL_NS has come, or there is nothing to do but wait for
 * K->wait_ns. Processes that fork faster than they can be killed are stopped first; one that the
 * kernel does not let go costs a scan a second. REAP takes in the dead (it is the caller's business
 * to keep their statuses) and returns whether any child is left. 0, or -EXDEV: then it has been
 * called once. */
typedef bool guard_reap_fn(void *user);
int guard_kill_below(struct guard_kill *k, const struct proc_root *root, uint64_t until_ns,
                     guard_reap_fn *reap, void *user);
/* Whether processes have survived SIGKILL for some seconds (as in uninterruptible sleep), with one
 * of them. */
bool guard_kill_stuck(const struct guard_kill *k, const struct proc_root *root, uint64_t now_ns,
                      struct proc_stat *ret, int32_t *ret_pid);
void guard_kill_fini(struct guard_kill *k);

/* Ends everything below the calling process, which must be a subreaper: SIGTERM, up to GRACE_NS,
 * then SIGKILL until no child is left. Reaps. Returns how many got SIGTERM, or -EXDEV. */
int guard_end_all(const struct proc_root *root, uint64_t grace_ns);

/* What is left of a job when its supervisor and its sentinel are both gone: processes that are
 * nobody's children any more, known by what only they have. */
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
