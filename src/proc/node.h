/* A process of a tree with its open fds and last readings. Private to proc/: node.c reads one
 * process, tree.c owns all processes, walk.c detects births and deaths, settle.c assigns roles,
 * unique.c counts pages. */
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

/* Number of fds that may stay open for later reads. Once the budget is used up, files are opened
 * for each read. */
struct fd_budget {
    size_t used, max;
};

struct tree_node {
    /* must be the first member, because node_of casts a proc_node pointer to a tree_node pointer */
    struct proc_node pub;

    /* Open fds; -1 means that the file is opened for each read. If tid is set, all fds except
     * dir_fd refer to /proc/PID/task/TID. The fd of a folder always refers to the same process,
     * even after its pid is reused. */
    int dir_fd, statm_fd, stat_fd, status_fd, children_fd;
    int32_t tid;      /* thread from which memory is read after the main thread has exited, or 0 */
    uint32_t threads; /* number of threads at the last read of stat */
    uint64_t size_bytes; /* size of the address space at the last read of stat */
    /* the name in stat; pub.info.comm may be the longer name of a Ray actor or task */
    char comm_seen[PROCESS_COMM_MAX];
    uint16_t comm_seen_len;
    uint64_t start_stack; /* start address of the stack, which changes with exec; 0 if unknown */
    dev_t exe_dev;        /* device and inode of the executable file; both 0 if unknown */
    ino_t exe_ino;
    uint32_t walk;  /* number of the last walk that read this process */
    bool names_due; /* the name and command line could not be read yet */

    struct role_maps maps; /* evidence found in the process's mappings so far */
    uint64_t maps_due_ns, maps_gap_ns;
    uint64_t maps_size_bytes; /* size of the address space when the process's maps was last read */
    size_t children;          /* number of living children in the tree */
    size_t siblings;
    bool child_trains; /* a descendant of the process has the role main */
    bool sends_steps;  /* set by proc_tree_note_step */
    size_t children_before;
    bool trained_before;
    bool role_dirty;     /* an input of role_guess has changed */
    uint32_t role_stamp; /* value of proc_tree.role_stamp when the role last changed */

    /* resident memory when the last count of the process's pages began */
    uint64_t unique_rss_bytes;
    /* the part of the unique memory that consists of pages of files and shared memory */
    uint64_t unique_file_bytes;
    /* time at which the process's pages are to be counted next; 0 if not scheduled */
    uint64_t unique_due_ns;
    /* start and end of the last complete count of the process's pages; 0 if there was none */
    uint64_t unique_begun_ns, unique_done_ns;
    uint8_t unique_failures; /* consecutive failures */

    uint64_t anon_bytes; /* anonymous memory at the last read of statm */
    bool fork_is_known;  /* fork_bytes is valid; it is unknown after an exec */
    /* memory that the process may share with the process it was forked from */
    uint64_t fork_bytes;
    uint64_t minor_faults; /* number of minor page faults up to the last walk */
};

static inline struct tree_node *node_of(struct proc_node *n)
{
    return (struct tree_node *)n;
}

/* Converts pages to bytes. The result saturates, because a hostile file may contain any number. */
static inline uint64_t pages_to_bytes(const struct proc_root *root, uint64_t pages)
{
    uint64_t bytes;
    return __builtin_mul_overflow(pages, root->page_bytes, &bytes) ? UINT64_MAX : bytes;
}

/* Enough for "2147483647/task/2147483647/smaps_rollup". */
enum { NODE_PATH_MAX = 64 };

/* Reads PID as a new process and keeps its fds open as far as BUDGET allows. Returns 0, or -ESRCH
 * (not found, or a zombie), -EACCES, -EMFILE, -ENOMEM… With WITH_MEMORY_ONLY, also returns -ESRCH
 * for kernel threads. */
int node_new(const struct proc_root *root, struct fd_budget *budget, int32_t pid,
             bool with_memory_only, struct tree_node **ret);
void node_free(struct fd_budget *budget, struct tree_node *n); /* N may be NULL */
/* Opens the fds that are not open yet, as far as BUDGET allows. */
void node_keep_fds(const struct proc_root *root, struct fd_budget *budget, struct tree_node *n);

/* Reads stat. Returns 0 or -errno; -ESRCH means that the process has exited (its pid may have been
 * reused). */
int node_read_stat(const struct proc_root *root, struct tree_node *n, struct proc_stat *ret);
/* Reads statm, with one pread if its fd is open. Zeroes in all fields do not prove that the process
 * is dead: call node_is_gone to find out. */
int node_read_statm(const struct proc_root *root, struct tree_node *n, struct proc_statm *ret);
int node_read_status(const struct proc_root *root, struct tree_node *n, struct proc_status *ret);
/* Gets device and inode of the executable file. Returns false if unknown. */
bool node_read_exe(const struct proc_root *root, const struct tree_node *n, dev_t *ret_dev,
                   ino_t *ret_ino);
/* Returns an fd of the process's folder. If the node has no such fd open, opens the folder, checks
 * the start time, and sets *ret_temporary to the fd, which the caller must close. */
int node_folder(const struct proc_root *root, const struct tree_node *n, int *ret_temporary);
int node_open(const struct proc_root *root, const struct tree_node *n, const char *name, int flags);

/* True only if the process has certainly exited: either it was reaped, or it is a zombie without
 * other living threads. If only the main thread has exited, memory is read from another thread from
 * now on. */
bool node_is_gone(const struct proc_root *root, struct fd_budget *budget, struct tree_node *n);

struct err;

struct pid_list {
    int32_t *pid;
    size_t count, cap;
};

struct kin {
    int32_t ppid, pid;
};

/* Arguments and result of a read in the helper thread. While the helper is busy, only the helper
 * uses the struct. */
struct slow_read {
    int fd; /* fd of the file to read, which the helper closes */
    ssize_t len;
    char text[PROCESS_CMDLINE_MAX];
    struct role_maps maps;
};

struct proc_tree {
    const struct proc_root *root; /* not owned */
    proc_event_fn *fn;
    void *user;
    struct fd_budget fds;
    uint64_t machine_mapped_bytes; /* 0 if unknown */

    /* living processes in order of birth; dead processes are removed at the end of each call */
    struct tree_node **nodes;
    size_t count, cap;
    /* hash table by pid, with open addressing; its size is a power of two */
    struct tree_node **table;
    size_t table_size;
    size_t dead; /* number of dead nodes in `nodes` */

    /* processes that are not in `nodes`, but whose children belong to the job */
    struct tree_node **below;
    size_t below_count;
    bool all; /* the tree contains every process of the machine */

    uint32_t walk; /* number of the current walk */
    uint32_t next_slot;
    uint32_t role_stamp;
    bool kin_dirty; /* a process was born, died or got a new parent since roles were last settled */

    struct proc_helper *helper; /* helper thread; NULL if it could not be started */
    struct slow_read slow;
    uint64_t waited_ns; /* time spent waiting for the helper thread during this walk */

    /* Whether the kernel provides task/TID/children files. Both members are false until this is
     * known. */
    bool has_children_files, no_children_files;
    struct pid_list kin; /* result of kin_children */
    /* all processes of the machine by ppid, for kernels without task/TID/children */
    struct kin *scan;
    size_t scan_count, scan_cap;
    uint32_t scan_walk;
};

/* Opens file NAME of N and calls FN in the helper thread. FN receives tree->slow as its argument
 * and closes slow.fd. Returns 0, or -errno if FN did not complete. */
int tree_read_slowly(struct proc_tree *tree, const struct tree_node *n, const char *name,
                     proc_helper_fn *fn);
/* Reads the name and command line into N's info. Sets N->names_due if they cannot be read now. */
void tree_read_names(struct proc_tree *tree, struct tree_node *n);

/* Adds PID to the tree. Returns 0 or the error of node_new. */
int tree_birth(struct proc_tree *tree, int32_t pid, bool is_root, uint64_t now_ns);
/* Marks N as dead. It stays in `nodes` until tree_bury frees it. */
void tree_death(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns);
void tree_bury(struct proc_tree *tree); /* frees all nodes that are marked as dead */
struct tree_node *tree_find(const struct proc_tree *tree, int32_t pid);
void tree_emit(struct proc_tree *tree, struct tree_node *n, enum process_event_kind kind,
               uint64_t now_ns);

/* Functions of settle.c: settle_newborn guesses the role at birth and emits no event; settle_roles
 * guesses all roles again after a walk. */
void settle_newborn(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns);
void settle_execed(struct tree_node *n, uint64_t now_ns);
void settle_roles(struct proc_tree *tree, uint64_t now_ns);
void tree_guess_role(const struct proc_tree *tree, const struct tree_node *n,
                     struct role_guess *ret);
/* Checks that PID is a process whose memory may be read. Returns 0, or -errno with a message. */
int tree_check_pid(struct proc_tree *tree, int32_t pid, struct err *err);
