/* The job's own cgroup, where ebb may make one. With it the kernel counts the job's memory once,
 * can enforce a limit, and kills all processes at once. Works with cgroup v2, v1 and hybrid;
 * delegated or as root. Every part may fail: a job also runs without a cgroup. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/limit.h"
#include "proc/procfs.h"
#include "proc/sample.h"

struct err;

enum { GUARD_CGROUP_PATH = 512 };

/* Up to two folders: one in the hierarchy that counts memory, one in v2 for cgroup.kill; in pure v2
 * they are the same. Paths are relative to proc_root.cgroup_fd; "" means no folder. */
struct guard_cgroup {
    char memory_dir[GUARD_CGROUP_PATH];
    char kill_dir[GUARD_CGROUP_PATH];
    bool memory_is_v2;
    bool is_limited; /* whether the kernel's hard limit is set */
    int join_fd[2];  /* cgroup.procs of each folder; -1: no folder, or the same as the other one */
    struct limit_fds fds;    /* files with the memory charged to the group */
    int peak_fd;             /* memory.peak / memory.max_usage_in_bytes; -1: not available */
    bool peak_is_resettable; /* a write to peak_fd resets it: v1, and v2 from kernel 6.12 on */
    int kill_fd;             /* cgroup.kill; -1: v1, or a kernel before 5.14 */
    int events_fd;           /* the kernel's count of OOM kills in this group; -1: not available */
};

/* A struct guard_cgroup without folders and files. */
extern const struct guard_cgroup guard_cgroup_none;

/* Makes the folders below our own cgroup, or else below the nearest ancestor that we may write to
 * and that delegates its memory controller; never above a group with a memory limit, because the
 * job would escape that limit. NAME is made by guard_cgroup_name. LIMIT_BYTES above 0 is set as the
 * hard limit, swap included. 0: at least one folder was made, and ERR says which part failed, or is
 * "". -errno: no folder was made, for the reason in ERR. */
int guard_cgroup_make(const struct proc_root *root, const char *name, uint64_t limit_bytes,
                      struct guard_cgroup *ret, struct err *err);
/* Sets the hard limit: 0 or -errno; -EOPNOTSUPP if G does not count memory. v1 refuses a limit
 * below current usage (-EBUSY); v2 accepts it, and the kernel kills until usage fits. */
int guard_cgroup_limit(const struct proc_root *root, struct guard_cgroup *g, uint64_t limit_bytes);
/* Opens the files of G by its paths. The old fds are not closed: the sentinel gets G from the
 * supervisor, and the numbers in it are the supervisor's. 0, or -errno of the first file that
 * cannot be opened; the others are still opened. */
int guard_cgroup_reopen(const struct proc_root *root, struct guard_cgroup *g);
/* In the child, before exec: moves the calling process into both folders of G. Async-signal-safe.
 * 0, or -errno of the first folder that failed; the other is still tried. */
int guard_cgroup_join(const struct guard_cgroup *g);
/* Like fork(), but the child starts in G's v2 folder if G has one and the kernel supports it (5.7):
 * moving a process into another group later makes the kernel wait for 10 ms or more. The child may
 * call only async-signal-safe functions. It joins the other folders by guard_cgroup_join_rest() if
 * *ret_is_in, else all of them by guard_cgroup_join(). */
pid_t guard_cgroup_fork(const struct proc_root *root, const struct guard_cgroup *g,
                        bool *ret_is_in);
int guard_cgroup_join_rest(const struct guard_cgroup *g); /* joins the v1 folder */
/* In v1 a move always has that wait, but a second move within some ms does not wait again. So the
 * sentinel, which is idle then, moves itself into its own group while the job is prepared. */
void guard_cgroup_warm(const struct proc_root *root);
/* Resident memory of the processes of TREE that are outside G, and one such process; 0: all are
 * inside, as far as known. The tree must have been walked before. */
struct proc_tree;
uint64_t guard_cgroup_left(const struct proc_root *root, const struct guard_cgroup *g,
                           struct proc_tree *tree, int32_t *ret_pid);
/* Which kind of limit G has. */
enum limit_kind guard_cgroup_kind(const struct guard_cgroup *g);
/* Kills every process in G with one write. -EOPNOTSUPP without cgroup.kill. */
int guard_cgroup_kill(const struct guard_cgroup *g);
/* Reads the number of OOM kills in G: 0 or -ENODATA. */
int guard_cgroup_oom_kills(const struct guard_cgroup *g, uint64_t *ret);
/* Closes all files, and removes the folders with the empty groups that the job made in them.
 * Retries until UNTIL_NS while the kernel reports EBUSY. 0: *G is empty; -errno: *G keeps the paths
 * for another try. */
int guard_cgroup_remove(const struct proc_root *root, struct guard_cgroup *g, uint64_t until_ns);
enum { GUARD_CGROUP_BUSY_MS = 2000 }; /* longest retry at the end of a job */
/* Removes folders called NAME from every place where guard_cgroup_make could have made them: for a
 * supervisor that was killed before it reported the paths. */
void guard_cgroup_remove_named(const struct proc_root *root, const char *name, uint64_t until_ns);

/* Makes the name "ebb-PID-TICKS" from the caller's pid and start time, which are unique. */
void guard_cgroup_name(const struct proc_root *root, char ret[64]);
/* Reads the maker of a folder from its name: 0, or -EINVAL for other names. */
int guard_cgroup_name_parse(const char *name, struct process_id *ret);
/* Whether the process named by DIR as its maker is alive; true if unknown. */
bool guard_cgroup_maker_lives(const struct proc_root *root, const char *dir);
/* Removes empty sibling folders whose makers are dead. Returns the number of removed folders. */
int guard_cgroup_tidy(const struct proc_root *root, const struct guard_cgroup *g);
