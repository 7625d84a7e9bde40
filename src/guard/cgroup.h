/* The job's own cgroup, where we may have one: its memory is then counted once by the kernel, a
 * limit can stand behind it, and everything in it can be killed at once. v2, v1 and hybrid;
 * delegated or root. Everything here may fail: a job runs without a cgroup as well. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/limit.h"
#include "proc/procfs.h"
#include "proc/sample.h"

struct err;

enum { GUARD_CGROUP_PATH = 512 };

/* Up to two folders: one in the hierarchy that counts memory, and one in v2 for cgroup.kill. In
 * pure v2 both are the same one. Paths are below proc_root.cgroup_fd; "" where there is none. */
struct guard_cgroup {
    char memory_dir[GUARD_CGROUP_PATH];
    char kill_dir[GUARD_CGROUP_PATH];
    bool memory_is_v2;
    bool is_limited;         /* the kernel's hard limit is set */
    int join_fd[2];          /* cgroup.procs of each; -1 where there is none, or both are one */
    struct limit_fds fds;    /* of the memory that it is charged with */
    int peak_fd;             /* memory.peak / memory.max_usage_in_bytes; -1 */
    bool peak_is_resettable; /* by a write: v1, and v2 from kernel 6.12 on */
    int kill_fd;             /* cgroup.kill; -1 (v1, or a kernel before 5.14) */
    int events_fd;           /* where the kernel counts oom kills of this group; -1 */
};

/* What it is before guard_cgroup_make, and after guard_cgroup_remove. */
extern const struct guard_cgroup guard_cgroup_none;

/* Makes the folder(s) below the nearest place of our own cgroup where that is possible: our own
 * group, else an ancestor that hands its memory controller down and lets us write; never above a
 * group with a memory limit, which the job would escape. NAME is the folder's ("ebb-PID-TICKS", see
 * guard_cgroup_name). LIMIT_BYTES above 0 is set as the hard limit, swap included. 0 with at least
 * one folder; what could not be had is in ERR even then (else ""); or -errno with ERR saying why
 * there is none ("cgroup: /user.slice/… is not ours to divide"), and nothing left behind. */
int guard_cgroup_make(const struct proc_root *root, const char *name, uint64_t limit_bytes,
                      struct guard_cgroup *ret, struct err *err);
/* Sets or changes the hard limit: 0 or -errno; -EOPNOTSUPP where memory is not counted. Set below
 * what is in use, v1 refuses (-EBUSY), while v2 takes it and the kernel kills until it holds. */
int guard_cgroup_limit(const struct proc_root *root, struct guard_cgroup *g, uint64_t limit_bytes);
/* Opens the files of a G of which only the paths are ours, such as the copy that the sentinel has
 * of the supervisor's: the fds in it are taken for numbers of another process and not closed. 0, or
 * -errno of the first that is not there; the others are open all the same. */
int guard_cgroup_reopen(const struct proc_root *root, struct guard_cgroup *g);
/* In the child, before exec: moves the calling process there. Async-signal-safe. 0 or -errno of
 * the first that failed; the others are tried all the same. */
int guard_cgroup_join(const struct guard_cgroup *g);
/* fork(), straight into G's v2 folder where it has one and the kernel can (5.7): to move a process
 * into another group makes the kernel wait for 10 ms and more unless it has just done so. The
 * child, of a process with threads perhaps, may call only what is async-signal-safe, and joins the
 * rest: guard_cgroup_join_rest() where *ret_is_in, else guard_cgroup_join(). Returns as fork()
 * does. */
pid_t guard_cgroup_fork(const struct proc_root *root, const struct guard_cgroup *g,
                        bool *ret_is_in);
int guard_cgroup_join_rest(const struct guard_cgroup *g); /* the v1 folder */
/* In v1 there is no way around that wait. Whoever has nothing else to do takes it upon itself while
 * the job is being prepared: it is moved into the group that it is in, and for some ms nobody else
 * has to wait. Nothing comes of it where that is not allowed, or there is no v1. */
void guard_cgroup_warm(const struct proc_root *root);
/* Resident memory of the processes of TREE that are neither in it nor in a group below it, and one
 * of them; 0: none is known to have left. The tree must have been walked before. */
struct proc_tree;
uint64_t guard_cgroup_left(const struct proc_root *root, const struct guard_cgroup *g,
                           struct proc_tree *tree, int32_t *ret_pid);
/* The kind of its limit. */
enum limit_kind guard_cgroup_kind(const struct guard_cgroup *g);
/* Kills everything in it at once: one write. -EOPNOTSUPP without cgroup.kill. */
int guard_cgroup_kill(const struct guard_cgroup *g);
/* How often the kernel's OOM killer has killed in it: 0, -ENODATA. */
int guard_cgroup_oom_kills(const struct guard_cgroup *g, uint64_t *ret);
/* Closes all; removes the folders and what empty groups the job made in them, trying until UNTIL_NS
 * while the kernel says busy. 0 and *G is none; or -errno of what is still there, and *G keeps the
 * paths for another try. */
int guard_cgroup_remove(const struct proc_root *root, struct guard_cgroup *g, uint64_t until_ns);
enum { GUARD_CGROUP_BUSY_MS = 2000 }; /* patience with one that is still busy when a job is over */
/* The same for whatever is called NAME where guard_cgroup_make would have made it: its maker died
 * before it could say where. */
void guard_cgroup_remove_named(const struct proc_root *root, const char *name, uint64_t until_ns);

/* The folder's name for the calling process: (pid, start time) so that it is nobody else's. */
void guard_cgroup_name(const struct proc_root *root, char ret[64]);
/* Whose folder it is, by its name: 0, or -EINVAL for what guard_cgroup_name never says. */
int guard_cgroup_name_parse(const char *name, struct process_id *ret);
/* Whether the process that made DIR, by its name, may be alive: then others must not end what is in
 * it. */
bool guard_cgroup_maker_lives(const struct proc_root *root, const char *dir);
/* Removes folders beside ours that such names show to be of dead processes, if they are empty:
 * somebody killed an ebb with everything above it. Returns how many. */
int guard_cgroup_tidy(const struct proc_root *root, const struct guard_cgroup *g);
