/* The processes of one job. They are found from the job's root processes through task/TID/children,
 * identified by pid and start time, and read through fds that stay open. Nothing here sleeps or
 * reads a clock; the caller decides when to sample. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/procfs.h"
#include "proc/sample.h"

struct err;
struct proc_helper;
struct proc_tree;
struct rlimit;

struct proc_node {
    /* id that is never reused while the tree exists; identifies the process in the recording */
    uint32_t slot;
    struct process_info info;
    struct sample sample;
    bool is_root;
    bool alive;
    uint64_t born_ns; /* time at which the process was first seen */
    uint64_t died_ns; /* time of death; valid if !alive */
    /* pointer for the caller, who sets it at birth and frees its target at death */
    void *user;
    /* the private part is struct tree_node in node.h */
};

/* An event of a process, reported during add, walk and tick. The node is valid until the callback
 * returns. At a death, the node's sample contains the last readings. */
struct proc_event {
    enum process_event_kind kind;
    uint64_t t_ns;
    struct proc_node *node;
};
typedef void proc_event_fn(void *user, const struct proc_event *event);

/* Raises the soft limit on open files to the hard limit. Call this once, before proc_tree_new. A
 * tree keeps about five fds per process open, until only 128 fds are left below the soft limit;
 * from then on the tree opens files for each read. Restore *ret_old in a child before exec, because
 * programs that use select() break if fd numbers exceed 1024. Returns 0 or -errno. */
int proc_raise_nofile(struct rlimit *ret_old);

/* Creates an empty tree. ROOT must outlive it. */
int proc_tree_new(const struct proc_root *root, proc_event_fn *fn, void *user,
                  struct proc_tree **ret);
void proc_tree_free(struct proc_tree *tree); /* TREE may be NULL */

/* Keeps at most MAX fds open from now on. Fds that are already open stay open. */
void proc_tree_set_fd_budget(struct proc_tree *tree, size_t max);

/* Adds PID and its descendants. Returns 0; -ESRCH if there is no such process or PID is a thread;
 * -EACCES if permission to read its memory is missing (another user's process); -EINVAL for a
 * kernel thread. The error message contains the pid and, for -EACCES, the user. Descendants that
 * belong to other users (sudo) are accepted, but their unique memory is unknown. */
int proc_tree_add(struct proc_tree *tree, int32_t pid, uint64_t now_ns, struct err *err);
/* Adds the children of PID, which is ebb's supervisor (a subreaper), but not PID itself. */
int proc_tree_add_below(struct proc_tree *tree, int32_t pid, uint64_t now_ns, struct err *err);
/* Adds every process of the machine that has memory of its own. Used by `watch --system`. */
int proc_tree_add_all(struct proc_tree *tree, uint64_t now_ns, struct err *err);

/* Detects births, deaths, exec and new parents. Scans /proc if the kernel provides no children
 * files. A dead node is freed after its event. A zombie is treated as dead unless it has other
 * living threads. If a child exits while the kernel lists its siblings, some siblings may be
 * missing from the list until the next walk. Therefore a process that is only missing from the list
 * is not treated as dead. */
int proc_tree_walk(struct proc_tree *tree, uint64_t now_ns);
/* Reads the resident memory of each process, with one pread each. */
void proc_tree_tick(struct proc_tree *tree, uint64_t now_ns);
/* Clears the `read` bits of all samples. Call this after the readings have been used. */
void proc_tree_clear_read(struct proc_tree *tree);
/* Reads the status file of NODE (anon, file, shmem, swap, peak). Returns 0 or -errno (-ESRCH if the
 * process died). */
int proc_node_read_status(struct proc_tree *tree, struct proc_node *node);
/* Reads the PSS of NODE from smaps_rollup. Called only on request, because reading smaps_rollup
 * stalls the process. */
int proc_node_read_pss(struct proc_tree *tree, struct proc_node *node);
/* Opens NODE/NAME ("maps", "pagemap", "fd"…) through the fd of its folder, so that a file of
 * another process with the same pid is never opened. */
int proc_node_open(struct proc_tree *tree, struct proc_node *node, const char *name, int flags);

/* Returns the helper thread, for other calls that may wait for a lock of a process. Returns NULL if
 * the thread could not be started. */
struct proc_helper *proc_tree_helper(struct proc_tree *tree);

/* The living processes, in order of birth. Pointers are valid until the next walk, tick or add. */
size_t proc_tree_count(const struct proc_tree *tree);
struct proc_node *proc_tree_at(struct proc_tree *tree, size_t i);
/* finds a living process; NULL if there is none */
struct proc_node *proc_tree_find(struct proc_tree *tree, int32_t pid);
/* Records that PID sent a step mark. For a process that multiprocessing spawned or forked, the mark
 * shows that the process is a rank, not a worker. The process's role changes at the next walk. */
void proc_tree_note_step(struct proc_tree *tree, int32_t pid);
const struct proc_root *proc_tree_root(const struct proc_tree *tree);

/* Lower and upper bound of the tree's memory, with pages that its processes share counted once. Let
 * u be the unique memory of a process (0 if unknown), and s = rss - u the memory that it shares
 * with other processes. Then low = sum(u) + max(s), because the largest shared part exists at least
 * once, and high = min(sum(rss), machine). machine = AnonPages + Mapped from meminfo, which counts
 * every mapped page of the machine once.
 *
 * u and rss are read at different times, so u is capped at rss, and high is at least low. If the u
 * of a process A was counted before a process B was born, or after B was last read, that u may
 * include pages that A and B share. The largest such u is therefore subtracted from the s of B. If
 * PSS was read for all processes at this tick, both bounds are sum(pss). The plain sum of RSS is
 * used as the upper bound only if meminfo cannot be read. */
struct proc_tree_memory {
    bool known; /* the RSS of at least one process is known */
    uint64_t low_bytes, high_bytes;
    uint64_t unique_bytes;            /* sum over the processes whose unique memory is known */
    uint64_t rss_sum_bytes;           /* plain sum of RSS, for comparison only */
    size_t unique_known;              /* number of processes whose unique memory is known */
    uint64_t low_without_files_bytes; /* lower bound without file pages, which are reclaimable */
    uint64_t sum_without_files_bytes; /* sum of RSS without file pages */
    uint64_t shared_sum_bytes;        /* sum of the pages that statm reports as shared */
};
/* Passes AnonPages + Mapped to the tree, if the caller has just read meminfo. Otherwise the tree
 * reads meminfo itself. */
void proc_tree_know_machine(struct proc_tree *tree, uint64_t mapped_bytes);
void proc_tree_memory(struct proc_tree *tree, struct proc_tree_memory *ret);
/* Returns the resident memory that NODE has gained since its unique memory was last measured. If it
 * was never measured, returns all resident memory of NODE, minus the part that NODE may still share
 * with the process from which it was forked. */
uint64_t proc_node_unmeasured(struct proc_tree *tree, struct proc_node *node);
