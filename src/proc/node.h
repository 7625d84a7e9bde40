/* One process of a tree from the inside: its kept fds and what was last seen of it. Private to
 * proc/: node.c reads one process, tree.c holds the set, walk.c finds who joins and leaves it,
 * settle.c its roles, unique.c counts pages. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/helper.h"
#include "proc/procfs.h"
#include "proc/read.h"
#include "proc/role.h"
#include "proc/sample.h"
#include "proc/tree.h"

/* How many fds may be kept open for later reads. Beyond it files are opened for each read. */
struct fd_budget {
    size_t used, max;
};

struct tree_node {
    struct proc_node pub; /* first: a struct proc_node * of a tree is one of these */

    /* Kept fds; -1: opened for each read. All but dir_fd are of /proc/PID/task/TID when tid is
     * set. A folder's fd always means the same process, whoever has its pid now. */
    int dir_fd, statm_fd, stat_fd, status_fd, children_fd;
    int32_t tid;          /* 0, or the living thread to read memory from: the main one exited */
    uint32_t threads;     /* by the last stat */
    uint64_t size_bytes;  /* of the address space, by the last stat */
    uint64_t start_stack; /* a new one means exec; 0: not to be known */
    dev_t exe_dev;        /* of the program's file; 0 and 0: not to be known */
    ino_t exe_ino;
    uint32_t walk;  /* the last walk that read it */
    bool names_due; /* its command line could not be read yet */

    struct role_maps maps; /* evidence so far */
    uint64_t maps_due_ns, maps_gap_ns;
    uint64_t maps_size_bytes; /* of the address space when maps were last read */
    size_t children;          /* living ones in the tree */
    size_t siblings;
    bool child_trains; /* one of its children, or below, is main */
    size_t children_before;
    bool trained_before;
    bool role_dirty;     /* a fact that the role hangs on has changed */
    uint32_t role_stamp; /* the settling pass in which its role last changed */

    uint64_t unique_rss_bytes;  /* resident when the last count began */
    uint64_t unique_file_bytes; /* of its unique memory, files and shared memory */
    uint64_t unique_due_ns;     /* when its pages are to be counted next; 0: not yet planned */
    uint64_t unique_done_ns;    /* when they last were, as a whole; 0: never */
    uint8_t unique_failures;    /* in a row */

    uint64_t anon_bytes;   /* anonymous memory, by the last statm */
    bool fork_is_known;    /* since birth or exec: */
    uint64_t fork_bytes;   /* that it may share with the process of which it is a fork */
    uint64_t minor_faults; /* by the last walk */
};

static inline struct tree_node *node_of(struct proc_node *n)
{
    return (struct tree_node *)n;
}

/* Saturates: hostile files may say anything. */
static inline uint64_t pages_to_bytes(const struct proc_root *root, uint64_t pages)
{
    uint64_t bytes;
    return __builtin_mul_overflow(pages, root->page_bytes, &bytes) ? UINT64_MAX : bytes;
}

/* Room for "2147483647/task/2147483647/smaps_rollup" and its like. */
enum { NODE_PATH_MAX = 64 };

/* Reads PID as a new process. 0, or -ESRCH (none, or a zombie), -EACCES, -EMFILE, -ENOMEM…
 * Fds are kept as far as BUDGET allows. WITH_MEMORY_ONLY: threads of the kernel are -ESRCH, too. */
int node_new(const struct proc_root *root, struct fd_budget *budget, int32_t pid,
             bool with_memory_only, struct tree_node **ret);
void node_free(struct fd_budget *budget, struct tree_node *n); /* NULL is fine */
/* Adds fds to a node that has fewer than it could. */
void node_keep_fds(const struct proc_root *root, struct fd_budget *budget, struct tree_node *n);

/* 0 or -errno; -ESRCH: no such process any more (another one may have its pid). */
int node_read_stat(const struct proc_root *root, struct tree_node *n, struct proc_stat *ret);
/* One pread where an fd is kept. Zeroes are no proof of death: ask node_is_gone. */
int node_read_statm(const struct proc_root *root, struct tree_node *n, struct proc_statm *ret);
int node_read_status(const struct proc_root *root, struct tree_node *n, struct proc_status *ret);
/* Which file it executes. False where that is not to be known. */
bool node_read_exe(const struct proc_root *root, const struct tree_node *n, dev_t *ret_dev,
                   ino_t *ret_ino);
/* A fd of the process's folder: the kept one, or one opened now and checked by start time, which
 * then is *ret_temporary and the caller's to close. */
int node_folder(const struct proc_root *root, const struct tree_node *n, int *ret_temporary);
int node_open(const struct proc_root *root, const struct tree_node *n, const char *name, int flags);

/* True only when it is certain: reaped, or a zombie without other living threads. Where the main
 * thread alone has exited, memory is read from another thread from here on. */
bool node_is_gone(const struct proc_root *root, struct fd_budget *budget, struct tree_node *n);

struct pid_list {
    int32_t *pid;
    size_t count, cap;
};

struct kin {
    int32_t ppid, pid;
};

/* What the helper reads; its own while it is busy. */
struct slow_read {
    int fd; /* the helper closes it */
    ssize_t len;
    char text[PROCESS_CMDLINE_MAX];
    struct role_maps maps;
};

struct proc_tree {
    const struct proc_root *root; /* borrowed */
    proc_event_fn *fn;
    void *user;
    struct fd_budget fds;
    int meminfo_fd;                /* -1 where there is none */
    uint64_t machine_mapped_bytes; /* 0: not known */

    struct tree_node **nodes; /* in order of birth; dead ones until the end of a call */
    size_t count, cap;
    struct tree_node **table; /* by pid, open addressing; size is a power of two */
    size_t table_size;
    size_t dead; /* among nodes */

    struct tree_node **below; /* whose children belong to the job; not in nodes */
    size_t below_count;
    bool all; /* every process of the machine */

    uint32_t walk; /* number of this walk */
    uint32_t next_slot;
    uint32_t role_stamp;
    bool kin_dirty; /* births, deaths or new parents since roles were settled */

    struct proc_helper *helper; /* NULL: none could be started */
    struct slow_read slow;
    uint64_t waited_ns; /* for it in this walk; the rest is for the next one */

    /* finding children, in walk.c */
    bool has_children_files, no_children_files;
    struct pid_list kin; /* what kin_children found */
    struct kin *scan;    /* the whole machine, by ppid; where there are no children files */
    size_t scan_count, scan_cap;
    uint32_t scan_walk;
};

/* Reads NAME of N in the helper by FN, which has tree->slow as its argument and closes slow.fd. 0,
 * or -errno: there is nothing in tree->slow, now or ever. */
int tree_read_slowly(struct proc_tree *tree, const struct tree_node *n, const char *name,
                     proc_helper_fn *fn);
/* Name and command line into info; where that has to wait, N->names_due. */
void tree_read_names(struct proc_tree *tree, struct tree_node *n);

/* Reads PID, which joins: 0, or what node_new says. */
int tree_birth(struct proc_tree *tree, int32_t pid, bool is_root, uint64_t now_ns);
/* It stays among the nodes until tree_bury. */
void tree_death(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns);
void tree_bury(struct proc_tree *tree); /* frees the dead */
struct tree_node *tree_find(const struct proc_tree *tree, int32_t pid);
void tree_emit(struct proc_tree *tree, struct tree_node *n, enum process_event_kind kind,
               int32_t old_ppid, uint64_t now_ns);

/* settle.c: the first guess at birth, without an event; and all roles once more after a walk. */
void settle_newborn(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns);
void settle_execed(struct tree_node *n, uint64_t now_ns);
void settle_roles(struct proc_tree *tree, uint64_t now_ns);
