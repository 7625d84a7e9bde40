/* Looking for births, deaths, exec and new parents: from the roots of a job down, or everywhere. */
#include "proc/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "proc/node.h"

/* The kernel moves the start of the stack twice during one exec. A look in between has found no
 * arguments yet, and already the program that is still there. */
static bool was_midway(const struct proc_tree *tree, const struct tree_node *n,
                       const struct process_info *before)
{
    dev_t dev;
    ino_t ino;
    return before->cmdline_len == 0 && (n->exe_dev != 0 || n->exe_ino != 0) &&
           node_read_exe(tree->root, n, &dev, &ino) && dev == n->exe_dev && ino == n->exe_ino;
}

/* Another program, or only another name? The stack of a new program begins elsewhere; where that
 * is not told (no rights), or not so (no address randomisation), a new name together with a new
 * file, or with a new command line where the file is secret, is taken for one. */
static bool has_execed(const struct proc_tree *tree, const struct tree_node *n,
                       const struct proc_stat *st, const struct process_info *before)
{
    const struct process_info *now = &n->pub.info;
    if (st->start_stack != 0 && n->start_stack != 0 && st->start_stack != n->start_stack)
        return !was_midway(tree, n, before);
    if (now->comm_len == before->comm_len && memcmp(now->comm, before->comm, now->comm_len) == 0)
        return false;
    dev_t dev;
    ino_t ino;
    if ((n->exe_dev != 0 || n->exe_ino != 0) && node_read_exe(tree->root, n, &dev, &ino))
        return dev != n->exe_dev || ino != n->exe_ino;
    return now->cmdline_len != before->cmdline_len ||
           memcmp(now->cmdline, before->cmdline, now->cmdline_len) != 0;
}

static void note_names(struct proc_tree *tree, struct tree_node *n, const struct proc_stat *st,
                       uint64_t now_ns)
{
    const struct process_info *info = &n->pub.info;
    bool renamed =
        st->comm_len != info->comm_len || memcmp(st->comm, info->comm, info->comm_len) != 0;
    bool new_stack =
        st->start_stack != 0 && n->start_stack != 0 && st->start_stack != n->start_stack;
    if (!renamed && !new_stack) {
        if (n->start_stack == 0)
            n->start_stack = st->start_stack;
        return;
    }
    if (proc_helper_is_busy(tree->helper))
        return; /* the next walk finds the same */
    const struct process_info before = *info;
    tree_read_names(tree, n);
    n->role_dirty = true;
    bool execed = has_execed(tree, n, st, &before);
    if (new_stack)
        n->start_stack = st->start_stack;
    if (!execed)
        return;
    n->start_stack = st->start_stack;
    if (!node_read_exe(tree->root, n, &n->exe_dev, &n->exe_ino))
        n->exe_dev = 0, n->exe_ino = 0;
    /* what was counted belongs to a program that is no more */
    n->pub.sample.known &= ~(1u << SAMPLE_UNIQUE | 1u << SAMPLE_HUGE | 1u << SAMPLE_HEAP |
                             1u << SAMPLE_STACK | 1u << SAMPLE_PSS | 1u << SAMPLE_PEAK);
    n->unique_due_ns = n->unique_done_ns = 0;
    n->unique_failures = 0;
    n->fork_is_known = false;
    settle_execed(n, now_ns);
    tree_emit(tree, n, PROCESS_EXECED, 0, now_ns);
}

static void refresh(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns)
{
    n->walk = tree->walk;
    struct proc_stat st;
    int r = node_read_stat(tree->root, n, &st);
    if (r == -ESRCH || (r == 0 && st.size_bytes == 0)) {
        if (r == -ESRCH || node_is_gone(tree->root, &tree->fds, n)) {
            tree_death(tree, n, now_ns);
            return;
        }
    }
    if (r < 0)
        return; /* no fd to be had just now: not a death */
    n->threads = st.threads;
    n->size_bytes = st.size_bytes;
    n->minor_faults = st.minor_faults;
    node_keep_fds(tree->root, &tree->fds, n);
    note_names(tree, n, &st, now_ns);
    if (st.ppid != n->pub.info.ppid) {
        int32_t old = n->pub.info.ppid;
        n->pub.info.ppid = st.ppid;
        tree->kin_dirty = true;
        n->role_dirty = true;
        tree_emit(tree, n, PROCESS_REPARENTED, old, now_ns);
    }
}

/* PID was seen where processes of the job are: known, or reused, or new. */
static int meet(struct proc_tree *tree, int32_t pid, uint64_t now_ns)
{
    struct tree_node *n = tree_find(tree, pid);
    if (n != NULL && n->walk != tree->walk)
        refresh(tree, n, now_ns);
    if (n != NULL && n->pub.alive)
        return 0;
    int r = tree_birth(tree, pid, false, now_ns);
    return r == -ENOMEM ? r : 0; /* gone again, or not to be read now: the next walk will tell */
}

static int meet_children(struct proc_tree *tree, const struct tree_node *n, uint64_t now_ns)
{
    int r = kin_children(tree, n);
    for (size_t i = 0; r != -ENOMEM && i < tree->kin.count; i++) {
        int met = meet(tree, tree->kin.pid[i], now_ns);
        if (met < 0)
            r = met;
    }
    return r == -ENOMEM ? r : 0;
}

/* Nodes from FROM on, those that join on the way included. */
static int walk_nodes(struct proc_tree *tree, size_t from, uint64_t now_ns)
{
    int r = 0;
    for (size_t i = from; r == 0 && i < tree->count; i++) {
        struct tree_node *n = tree->nodes[i];
        if (n->pub.alive && n->walk != tree->walk)
            refresh(tree, n, now_ns);
        if (n->pub.alive && !tree->all)
            r = meet_children(tree, n, now_ns);
    }
    return r;
}

static int walk_machine(struct proc_tree *tree, uint64_t now_ns)
{
    struct pid_dir pids;
    int r = pid_dir_open(&pids, tree->root->proc_fd, ".");
    if (r < 0)
        return r;
    int32_t pid;
    while (r == 0 && pid_dir_next(&pids, &pid))
        r = meet(tree, pid, now_ns);
    pid_dir_close(&pids);
    return r;
}

static int walk_below(struct proc_tree *tree, uint64_t now_ns)
{
    int r = 0;
    for (size_t i = 0; r == 0 && i < tree->below_count; i++) {
        struct tree_node *n = tree->below[i];
        struct proc_stat st;
        if (node_read_stat(tree->root, n, &st) < 0)
            continue;
        n->threads = st.threads;
        r = meet_children(tree, n, now_ns);
    }
    return r;
}

static void begin_walk(struct proc_tree *tree)
{
    tree->walk++;
    tree->waited_ns = 0;
}

static void end_walk(struct proc_tree *tree, uint64_t now_ns)
{
    settle_roles(tree, now_ns);
    tree_bury(tree);
}

int proc_tree_walk(struct proc_tree *tree, uint64_t now_ns)
{
    begin_walk(tree);
    int r = tree->all ? walk_machine(tree, now_ns) : 0;
    if (r == 0)
        r = walk_below(tree, now_ns);
    if (r == 0)
        r = walk_nodes(tree, 0, now_ns);
    end_walk(tree, now_ns);
    return r;
}

/* ---- adding roots ---- */

static const char *user_name(uint32_t uid, char *buf, size_t size)
{
    char text[1024];
    struct passwd pw, *found = NULL;
    if (getpwuid_r(uid, &pw, text, sizeof(text), &found) == 0 && found != NULL)
        snprintf(buf, size, "%s", pw.pw_name);
    else
        snprintf(buf, size, "uid %u", uid);
    return buf;
}

static int say_why_not(struct err *err, int code, int32_t pid)
{
    switch (code) {
    case -ESRCH:
        return err_set(err, code,
                       "there is no process %d (any more): `ps -e` lists those there are", pid);
    case -EPERM:
    case -EACCES:
        return err_set(err, -EACCES,
                       "process %d may not be looked at: /proc hides the processes of other users "
                       "here; run ebb as root",
                       pid);
    default:
        return err_set(err, code, "cannot look at process %d: %s", pid, strerror(-code));
    }
}

/* Memory is private to a user: whoever may not open maps gets neither unique memory nor PSS. */
static int check_root(struct proc_tree *tree, struct tree_node *n, struct err *err)
{
    int32_t pid = n->pub.info.id.pid;
    struct proc_status st = {0};
    if (node_read_status(tree->root, n, &st) == 0 && (st.has & STATUS_TGID) && st.tgid != pid)
        return proc_refuse_thread(tree->root, pid, st.tgid, err);
    AUTO_CLOSE int maps = node_open(tree->root, n, "maps", O_RDONLY);
    if (maps == -EACCES || maps == -EPERM) {
        char name[64];
        return err_set(err, -EACCES,
                       "process %d belongs to %s and its memory may not be looked at: run ebb as "
                       "that user or as root",
                       pid, user_name(st.uid, name, sizeof(name)));
    }
    /* amid the exit of its main thread a process has no memory to show, and others to look for */
    if (n->size_bytes == 0 && n->tid == 0 && n->threads <= 1)
        return err_set(err, -EINVAL, "%d is a thread of the kernel: it has no memory of its own",
                       pid);
    return 0;
}

/* A look before anything is added, so that a refusal leaves no trace in the recording. */
static int check_pid(struct proc_tree *tree, int32_t pid, struct err *err)
{
    struct tree_node *n = NULL;
    int r = pid > 0 ? node_new(tree->root, &tree->fds, pid, false, &n) : -ESRCH;
    if (r < 0)
        return say_why_not(err, r, pid);
    r = check_root(tree, n, err);
    node_free(&tree->fds, n);
    return r;
}

int proc_tree_add(struct proc_tree *tree, int32_t pid, uint64_t now_ns, struct err *err)
{
    int r = check_pid(tree, pid, err);
    if (r < 0)
        return r;
    begin_walk(tree);
    size_t from = tree->count;
    struct tree_node *n = tree_find(tree, pid);
    if (n != NULL)
        refresh(tree, n, now_ns);
    if (n != NULL && n->pub.alive)
        n->pub.is_root = true;
    else
        r = tree_birth(tree, pid, true, now_ns);
    if (r < 0)
        return say_why_not(err, r, pid);
    r = walk_nodes(tree, from, now_ns);
    for (size_t i = from; i < tree->count; i++)
        tree->nodes[i]->maps_due_ns = now_ns; /* it may have been running for long */
    end_walk(tree, now_ns);
    return r < 0 ? say_why_not(err, r, pid) : 0;
}

int proc_tree_add_below(struct proc_tree *tree, int32_t pid, uint64_t now_ns, struct err *err)
{
    struct tree_node **below =
        reallocarray(tree->below, tree->below_count + 1, sizeof(struct tree_node *));
    if (below == NULL)
        return say_why_not(err, -ENOMEM, pid);
    tree->below = below;
    struct tree_node *n;
    int r = pid > 0 ? node_new(tree->root, &tree->fds, pid, false, &n) : -ESRCH;
    if (r < 0)
        return say_why_not(err, r, pid);
    tree->below[tree->below_count++] = n;
    begin_walk(tree);
    size_t from = tree->count;
    r = walk_below(tree, now_ns);
    if (r == 0)
        r = walk_nodes(tree, from, now_ns);
    end_walk(tree, now_ns);
    return r < 0 ? say_why_not(err, r, pid) : 0;
}

int proc_tree_add_all(struct proc_tree *tree, uint64_t now_ns, struct err *err)
{
    tree->all = true;
    int r = proc_tree_walk(tree, now_ns);
    return r < 0 ? err_set(err, r, "cannot list the processes of this machine: %s", strerror(-r))
                 : 0;
}
