/* Ends processes of the job and no others. Sends signals through a pidfd, and only to our own
 * descendants or to a process identified by pid and start time. Code elsewhere signals only
 * processes that it started itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/procfs.h"
#include "proc/sample.h"

/* If /proc belongs to another pid namespace (proc_root_is_foreign), the pids in it do not identify
 * our processes. In this case the functions below send no signal and return -EXDEV. The caller can
 * still kill() its own child. */

/* Signals the process that ID identifies. Returns 0, or -ESRCH if that process has exited, even if
 * its pid now belongs to another process. */
int guard_signal(const struct proc_root *root, const struct process_id *id, int signo);

/* Signals every member of a process group atomically, including children that are being forked.
 * LEADER_FD is a pidfd of the group's leader. Works after the leader has exited, as long as the
 * group has a member. Returns 0, -ESRCH if the group is empty, or -EINVAL if the kernel is older
 * than 6.9. */
int guard_signal_group(int leader_fd, int signo);

/* Signals every living descendant of PARENT, but not PARENT itself. If PGRP is above 0, signals
 * only descendants in that process group. PARENT must be the caller or one of the caller's
 * children. Returns the number of signalled processes. */
int guard_signal_below(const struct proc_root *root, int32_t parent, int32_t pgrp, int signo);

/* Progress of killing a set of processes. The caller zeroes it before the first call. */
struct guard_kill {
    struct found *seen; /* processes that the last scan found, ordered by pid */
    size_t count;
    /* number of scans in a row that sent SIGSTOP because they found new processes */
    unsigned stops;
    uint64_t changed_ns; /* time at which the set of processes last changed */
    uint64_t wait_ns;    /* how long to wait before the next call */
};

/* Kills all descendants of the calling process, which must be a subreaper. If the descendants fork
 * faster than they can be killed, sends SIGSTOP first. Returns when REAP returns false, at
 * UNTIL_NS, or if the caller should wait for K->wait_ns before the next call. A process that
 * survives SIGKILL costs one scan per second. REAP reaps children, may store their exit statuses,
 * and returns whether any child is left. Returns 0, or -EXDEV after one call of REAP. */
typedef bool guard_reap_fn(void *user);
int guard_kill_below(struct guard_kill *k, const struct proc_root *root, uint64_t until_ns,
                     guard_reap_fn *reap, void *user);
/* True if a process has survived SIGKILL for some seconds (uninterruptible sleep). RET and RET_PID
 * describe such a process. */
bool guard_kill_stuck(const struct guard_kill *k, const struct proc_root *root, uint64_t now_ns,
                      struct proc_stat *ret, int32_t *ret_pid);
void guard_kill_fini(struct guard_kill *k);

/* Ends all descendants of the calling process, which must be a subreaper: sends SIGTERM, waits up
 * to GRACE_NS, then sends SIGKILL until no child is left, and reaps them. Returns the number of
 * processes to which SIGTERM was sent, or -EXDEV. */
int guard_end_all(const struct proc_root *root, uint64_t grace_ns);

/* Properties that identify the processes of a job whose supervisor and sentinel were both
 * killed. */
struct stray_signs {
    /* value of EBB_RUN_DIR in the initial environment of the job's processes */
    const char *run_dir;
    const char *cgroup; /* name of the job's cgroup, from guard_cgroup_name, or "" */
};

/* Signals every living process that SIGNS identify, and its descendants, but never the caller.
 * Returns the number of signalled processes, -EXDEV (proc_root_is_foreign) or -errno. */
int guard_signal_strays(const struct proc_root *root, const struct stray_signs *signs, int signo);

/* Ends the processes that SIGNS identify, and their descendants: sends SIGTERM, waits up to
 * GRACE_NS, then sends SIGKILL until no such process is left. Gives up after some seconds if a
 * process survives SIGKILL. Returns the number of processes to which SIGTERM was sent. */
int guard_end_strays(const struct proc_root *root, const struct stray_signs *signs,
                     uint64_t grace_ns);
