/* The processes of one job: found by task/TID/children from its roots, named by (pid, start
 * time), read through kept fds. Nothing here sleeps or reads a clock; the caller paces it. */
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
    uint32_t slot; /* unique within the tree's life, never reused; the recording's name for it */
    struct process_info info;
    struct sample sample;
    bool is_root;
    bool alive;
    uint64_t born_ns; /* when first seen */
    uint64_t died_ns; /* valid when !alive */
    void *user;       /* the watcher's own: set at birth, freed at death, never touched here */
    /* what proc/ keeps beside it is in node.h */
};

/* Called from add, walk and tick. The node is valid until the call returns; of a death, its
 * sample holds the last readings. OLD_PPID is set for PROCESS_REPARENTED. */
struct proc_event {
    enum process_event_kind kind;
    uint64_t t_ns;
    struct proc_node *node;
    int32_t old_ppid;
};
typedef void proc_event_fn(void *user, const struct proc_event *event);

/* Raises the soft limit of open files to the hard one, once, before proc_tree_new: a tree keeps
 * about five fds for each process, up to 128 below the soft limit, and opens files for each read
 * beyond that. *ret_old is what a child must get back before exec: programs that use select()
 * break above 1024. 0 or -errno. */
int proc_raise_nofile(struct rlimit *ret_old);

/* ROOT is borrowed. */
int proc_tree_new(const struct proc_root *root, proc_event_fn *fn, void *user,
                  struct proc_tree **ret);
void proc_tree_free(struct proc_tree *tree); /* NULL is fine */

/* Keeps at most MAX fds from now on (those kept stay). For tests and for small limits. */
void proc_tree_set_fd_budget(struct proc_tree *tree, size_t max);

/* Adds PID and everything below it. -ESRCH: no such process, or a thread's number; -EACCES:
 * exists, but its memory may not be read (another user's); -EINVAL: a thread of the kernel.
 * The sentence names the pid and, for -EACCES, the user. Processes of other users further down
 * (sudo) are no error: they have no unique memory, that is all. */
int proc_tree_add(struct proc_tree *tree, int32_t pid, uint64_t now_ns, struct err *err);
/* The children of PID belong to the job, PID itself does not (a subreaper: our supervisor). */
int proc_tree_add_below(struct proc_tree *tree, int32_t pid, uint64_t now_ns, struct err *err);
/* Every process of the machine that has memory, for `watch --system`. */
int proc_tree_add_all(struct proc_tree *tree, uint64_t now_ns, struct err *err);

/* Looks for births, deaths, exec and new parents. Falls back to a scan of /proc where the kernel
 * has no children files. Deaths free the node after its event. A zombie counts as dead, unless
 * other threads of it live on. A child that exits while its siblings are listed may hide some of
 * them until the next walk; nothing is called dead for not being listed. */
int proc_tree_walk(struct proc_tree *tree, uint64_t now_ns);
/* Reads resident memory of each process: one pread each. */
int proc_tree_tick(struct proc_tree *tree, uint64_t now_ns);
/* Clears every sample's `read` bits: what was read since has been taken. */
void proc_tree_clear_read(struct proc_tree *tree);
/* One status file (anon, file, shmem, swap, peak) for NODE. 0 or -errno (-ESRCH: it died). */
int proc_node_read_status(struct proc_tree *tree, struct proc_node *node);
/* PSS of NODE through smaps_rollup: stalls the process; only where the user asked for it. */
int proc_node_read_pss(struct proc_tree *tree, struct proc_node *node);
/* Opens NODE/NAME ("maps", "pagemap", "fd"…) by its kept folder, so never another process's. */
int proc_node_open(struct proc_tree *tree, struct proc_node *node, const char *name, int flags);

/* For other calls that may wait for a lock of a process of the tree. NULL: none. */
struct proc_helper *proc_tree_helper(struct proc_tree *tree);

/* Living processes, in order of birth. Valid until the next walk, tick or add. */
size_t proc_tree_count(const struct proc_tree *tree);
struct proc_node *proc_tree_at(struct proc_tree *tree, size_t i);
struct proc_node *proc_tree_find(struct proc_tree *tree, int32_t pid); /* living; NULL if none */
const struct proc_root *proc_tree_root(const struct proc_tree *tree);

/* What the tree's memory is when pages shared between its processes count once. With u the unique
 * memory of a process (0 where unknown) and s = rss - u what it shares, with whomever:
 *
 *   low  = sum(u) + max(s)              the largest shared part exists at least once
 *   high = min(sum(rss), machine)       machine = AnonPages + Mapped of meminfo: every mapped page
 *                                       of the machine, once; ours are among them
 *
 * u and rss are from different moments, so u is cut at rss, and high is at least low; and s of a
 * process is less by the largest u that was counted before it was there, or after it was last read:
 * before a fork and after its end that u may be the very pages it shares. Where the PSS of all was
 * read at this tick both are sum(pss). Never a plain sum of RSS on a machine whose meminfo can be
 * read. */
struct proc_tree_memory {
    bool known; /* the RSS of at least one process is */
    uint64_t low_bytes, high_bytes;
    uint64_t unique_bytes;  /* sum of unique memory, of those where it is known */
    uint64_t rss_sum_bytes; /* for comparison only */
    size_t unique_known;    /* processes whose unique memory is known */
    /* The lower bound without the pages of files, which the kernel can reclaim; and the sums of RSS
     * without them, and of pages that statm calls shared. */
    uint64_t low_without_files_bytes, sum_without_files_bytes, shared_sum_bytes;
};
/* AnonPages + Mapped, from whoever has just read meminfo; without it the tree reads it itself. */
void proc_tree_know_machine(struct proc_tree *tree, uint64_t mapped_bytes);
void proc_tree_memory(struct proc_tree *tree, struct proc_tree_memory *ret);
/* How much of NODE's resident memory has come since its unique memory was measured. Where that
 * never was: all of it, less what it may still share with a process that it is a fork of. */
uint64_t proc_node_unmeasured(struct proc_tree *tree, struct proc_node *node);
