/* The job's own cgroup, if ebb may create one. The cgroup lets the kernel count each page of the
 * job once, enforce a limit, and kill all processes at once. Works with cgroup v1, v2 and hybrid
 * hierarchies, as root or in a delegated group. Every operation may fail: a job also runs without a
 * cgroup. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/limit.h"
#include "proc/procfs.h"
#include "proc/sample.h"

struct err;

enum { GUARD_CGROUP_PATH = 512 };

/* DIR is relative to proc_root.cgroup_fd, and "" if there is no group. An fd is negative if its
 * file is not open. */
struct guard_cgroup {
    char dir[GUARD_CGROUP_PATH];
    bool is_v2;
    bool is_limited;      /* the kernel's hard limit is set */
    int join_fd;          /* fd of cgroup.procs */
    struct limit_fds fds; /* files that show the group's memory usage */
    int peak_fd;          /* fd of memory.peak (v2) or memory.max_usage_in_bytes (v1) */
    /* whether a write to peak_fd resets the peak: in v1, and in v2 from kernel 6.12 on */
    bool peak_is_resettable;
    int kill_fd;   /* fd of cgroup.kill, which v1 and kernels before 5.14 lack */
    int events_fd; /* fd of the file that counts OOM kills in this group */
};

/* A struct guard_cgroup with no folder and no open files. */
extern const struct guard_cgroup guard_cgroup_none;

/* Creates the folder NAME below our own cgroup in the hierarchy that has the memory controller. If
 * that fails, creates it below the nearest ancestor that we may write to and that delegates its
 * memory controller. Never goes above a group with a memory limit, because the job would escape
 * that limit. NAME comes from guard_cgroup_name. If LIMIT_BYTES is not 0, it becomes the hard limit
 * of memory and swap together. Returns 0 if the folder was created; ERR is then "", or explains why
 * the limit could not be set. Otherwise returns -errno with the reason in ERR. */
int guard_cgroup_make(const struct proc_root *root, const char *name, uint64_t limit_bytes,
                      struct guard_cgroup *ret, struct err *err);
/* Sets the hard limit. Returns 0 or -errno; -EOPNOTSUPP if there is no group. v1 rejects a limit
 * below the current usage (-EBUSY); v2 accepts it, and the kernel then kills processes until the
 * usage is below the limit. */
int guard_cgroup_limit(const struct proc_root *root, struct guard_cgroup *g, uint64_t limit_bytes);
/* Opens the files of G by path, without closing the fds already stored in G. Returns 0, or -errno
 * if a required file cannot be opened; the remaining files are opened nevertheless. */
int guard_cgroup_reopen(const struct proc_root *root, struct guard_cgroup *g);
/* Moves the calling process into G. Called in the child before exec. Async-signal-safe. Returns 0
 * or -errno. */
int guard_cgroup_join(const struct guard_cgroup *g);
/* Like fork(), but starts the child in G if G is a v2 group and the kernel supports this (since
 * 5.7), because the kernel needs 10 ms or more to move a process later. The child may call only
 * async-signal-safe functions. If *ret_is_in is false, the child must call guard_cgroup_join(). */
pid_t guard_cgroup_fork(const struct proc_root *root, const struct guard_cgroup *g,
                        bool *ret_is_in);
/* Moves the caller into its own current cgroup, which makes the next move of any process faster. In
 * v1, the kernel waits for 10 ms or more during a move, but not if another move ended a few
 * milliseconds ago. The sentinel calls this while the supervisor prepares the job. */
void guard_cgroup_warm(const struct proc_root *root);
/* Returns the resident memory of those processes of TREE that are outside G, and stores the pid of
 * one of them in *RET_PID. Returns 0 if all known processes are inside G. The caller must have
 * walked TREE before this call. */
struct proc_tree;
uint64_t guard_cgroup_left(const struct proc_root *root, const struct guard_cgroup *g,
                           struct proc_tree *tree, int32_t *ret_pid);
/* Returns the version of G's hierarchy: v1 or v2. */
enum limit_kind guard_cgroup_kind(const struct guard_cgroup *g);
/* Kills every process in G with one write. Returns -EOPNOTSUPP if the kernel has no cgroup.kill. */
int guard_cgroup_kill(const struct guard_cgroup *g);
/* Reads the number of OOM kills in G. Returns 0 or -ENODATA. */
int guard_cgroup_oom_kills(const struct guard_cgroup *g, uint64_t *ret);
/* Closes all files. Removes the folder and the empty groups that the job created in it. Retries
 * until UNTIL_NS while the kernel reports EBUSY. Returns 0 and empties *G. If the folder could not
 * be removed, returns -errno and keeps the path in G for another attempt. */
int guard_cgroup_remove(const struct proc_root *root, struct guard_cgroup *g, uint64_t until_ns);
/* how long the removal of the cgroup is retried at the end of a job */
enum { GUARD_CGROUP_BUSY_MS = 2000 };
/* Writes the name "ebb-PID-TICKS". The caller's pid and start time make it unique. */
void guard_cgroup_name(const struct proc_root *root, char ret[64]);
/* Parses the name of a folder, which contains the pid and start time of the process that created
 * the folder. Returns 0, or -EINVAL if guard_cgroup_name did not generate the name. */
int guard_cgroup_name_parse(const char *name, struct process_id *ret);
/* Returns false only if the process that created the folder DIR is known to be dead. */
bool guard_cgroup_maker_lives(const struct proc_root *root, const char *dir);
/* Removes empty sibling folders whose creators are dead. Returns the number of removed folders. */
int guard_cgroup_tidy(const struct proc_root *root, const struct guard_cgroup *g);
