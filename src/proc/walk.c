/* Detects births, deaths, exec and new parents, either below the roots of a job or on the whole
 * machine. */
#include "proc/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "proc/command.h"
#include "proc/node.h"

/* ---- children of a process ----
 *
 * The children are read from task/TID/children of all threads of the process, or from a scan of
 * /proc if the kernel has no such files. */

static int pid_list_add(struct pid_list *list, int32_t pid)
{
    if (!ARRAY_ROOM(list->pid, list->count, list->cap))
        return -ENOMEM;
    list->pid[list->count++] = pid;
    return 0;
}

/* Returns the length of S up to and including the last blank, so that no number is cut in half; LEN
 * if S contains no blank. */
static size_t whole_numbers(const char *s, size_t len)
{
    for (size_t i = len; i > 0; i--)
        if (s[i - 1] == ' ' || s[i - 1] == '\n')
            return i;
    return len;
}

/* The kernel returns at most one page per read. A read that leaves space for another number has
 * reached the end of the list, so a process with few children needs no second system call. */
enum { CHILDREN_TEXT = 4096, CHILDREN_ROOM = 16 };

static int add_children_file(struct pid_list *list, int fd)
{
    char text[CHILDREN_TEXT];
    int32_t pids[CHILDREN_TEXT / 2];
    off_t at = 0;
    for (;;) {
        ssize_t n = pread(fd, text, sizeof text, at);
        if (n <= 0)
            return n < 0 ? -errno : 0;
        size_t len = whole_numbers(text, (size_t)n);
        size_t found = proc_pids_parse(text, len, pids, sizeof pids / sizeof pids[0]);
        for (size_t i = 0; i < found; i++) {
            int r = pid_list_add(list, pids[i]);
            if (r < 0)
                return r;
        }
        if (n + CHILDREN_ROOM < CHILDREN_TEXT)
            return 0;
        at += (off_t)len;
    }
}

static int open_children(int dirfd, const char *path)
{
    int fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Returns -ENOENT if the thread exists but the kernel provides no children files. */
static int children_of_main_thread(struct proc_tree *tree, const struct tree_node *n, int dir)
{
    if (n->children_fd >= 0) {
        tree->has_children_files = true;
        return add_children_file(&tree->kin, n->children_fd);
    }
    char path[NODE_PATH_MAX];
    snprintf(path, sizeof path, "task/%d/children", n->pub.info.id.pid);
    AUTO_CLOSE int fd = open_children(dir, path);
    if (fd >= 0) {
        tree->has_children_files = true;
        return add_children_file(&tree->kin, fd);
    }
    struct stat st;
    if (fd == -ENOENT && !tree->has_children_files && fstatat(dir, "task", &st, 0) == 0)
        tree->no_children_files = true;
    return fd;
}

static int children_of_all_threads(struct proc_tree *tree, int dir)
{
    struct pid_dir tasks;
    int r = pid_dir_open(&tasks, dir, "task");
    if (r < 0)
        return r;
    int32_t tid;
    int result = 0;
    while (result != -ENOMEM && pid_dir_next(&tasks, &tid)) {
        char path[NODE_PATH_MAX];
        snprintf(path, sizeof path, "%d/children", tid);
        AUTO_CLOSE int fd = open_children(tasks.fd, path);
        r = fd < 0 ? fd : add_children_file(&tree->kin, fd);
        if (r < 0 && r != -ENOENT && r != -ESRCH)
            result = r; /* a thread that has exited is not an error */
    }
    pid_dir_close(&tasks);
    return result;
}

static int by_ppid(const void *a, const void *b)
{
    const struct kin *x = a, *y = b;
    if (x->ppid != y->ppid)
        return x->ppid < y->ppid ? -1 : 1;
    return (x->pid > y->pid) - (x->pid < y->pid);
}

static int scan_machine(struct proc_tree *tree)
{
    if (tree->scan_walk == tree->walk)
        return 0; /* /proc is scanned only once per walk */
    tree->scan_count = 0;
    struct pid_dir pids;
    int r = pid_dir_open(&pids, tree->root->proc_fd, ".");
    if (r < 0)
        return r;
    int32_t pid;
    struct proc_stat st;
    while (r == 0 && pid_dir_next(&pids, &pid)) {
        if (proc_read_stat(tree->root, pid, &st) < 0)
            continue;
        if (!ARRAY_ROOM(tree->scan, tree->scan_count, tree->scan_cap))
            r = -ENOMEM;
        else
            tree->scan[tree->scan_count++] = (struct kin){st.ppid, pid};
    }
    pid_dir_close(&pids);
    if (tree->scan_count > 0)
        qsort(tree->scan, tree->scan_count, sizeof *tree->scan, by_ppid);
    tree->scan_walk = tree->walk;
    return r;
}

static int children_by_scan(struct proc_tree *tree, int32_t ppid)
{
    int r = scan_machine(tree);
    size_t at = ARRAY_SEARCH(i, tree->scan_count, tree->scan[i].ppid < ppid);
    for (; r == 0 && at < tree->scan_count && tree->scan[at].ppid == ppid; at++)
        r = pid_list_add(&tree->kin, tree->scan[at].pid);
    return r;
}

/* Reads the children of N into tree->kin. Returns 0 or -errno. In either case the list contains the
 * children that could be read. */
static int kin_children(struct proc_tree *tree, const struct tree_node *n)
{
    tree->kin.count = 0;
    if (tree->no_children_files)
        return children_by_scan(tree, n->pub.info.id.pid);
    if (n->threads == 1 && n->children_fd >= 0)
        return children_of_main_thread(tree, n, -1);
    AUTO_CLOSE int temporary = -1;
    int dir = node_folder(tree->root, n, &temporary);
    if (dir < 0)
        return dir;
    int r = 0;
    if (n->threads == 1 || !tree->has_children_files)
        r = children_of_main_thread(tree, n, dir);
    if (tree->no_children_files)
        return children_by_scan(tree, n->pub.info.id.pid);
    if (n->threads == 1)
        return r;
    tree->kin.count = 0;
    return children_of_all_threads(tree, dir);
}

/* ---- walking ---- */

/* True if N was last read in the middle of an exec. During an exec the kernel moves the start of
 * the stack twice; between the two moves, /proc shows the new program without arguments. */
static bool was_read_during_exec(const struct proc_tree *tree, const struct tree_node *n,
                                 const struct process_info *before)
{
    dev_t dev;
    ino_t ino;
    return before->cmdline_len == 0 && (n->exe_dev != 0 || n->exe_ino != 0) &&
           node_read_exe(tree->root, n, &dev, &ino) && dev == n->exe_dev && ino == n->exe_ino;
}

/* Distinguishes exec from a mere change of name. A new program usually has a different stack
 * address. If the address cannot be read (missing permission) or has not changed (no address
 * randomization), exec is assumed if both the name and the executable file have changed or, if the
 * executable file is unknown, both the name and the command line. */
static bool has_execed(const struct proc_tree *tree, const struct tree_node *n,
                       const struct proc_stat *st, const struct process_info *before)
{
    const struct process_info *now = &n->pub.info;
    if (st->start_stack != 0 && n->start_stack != 0 && st->start_stack != n->start_stack)
        return !was_read_during_exec(tree, n, before);
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
    struct span title;
    bool renamed =
        st->comm_len != n->comm_seen_len || memcmp(st->comm, n->comm_seen, n->comm_seen_len) != 0;
    bool new_stack =
        st->start_stack != 0 && n->start_stack != 0 && st->start_stack != n->start_stack;
    if (!renamed && !new_stack) {
        if (n->start_stack == 0)
            n->start_stack = st->start_stack;
        return;
    }
    if (proc_helper_is_busy(tree->helper))
        return; /* the helper thread is busy, so the next walk tries again */
    const struct process_info before = *info;
    tree_read_names(tree, n);
    n->role_dirty = true;
    bool execed = has_execed(tree, n, st, &before);
    if (new_stack)
        n->start_stack = st->start_stack;
    /* the Ray worker now runs another actor or task, whose name is recorded */
    if (!execed && command_ray_title(info->cmdline, info->cmdline_len, &title) &&
        (before.cmdline_len != info->cmdline_len ||
         memcmp(before.cmdline, info->cmdline, info->cmdline_len) != 0))
        tree_emit(tree, n, PROCESS_ROLE, now_ns);
    if (!execed)
        return;
    n->start_stack = st->start_stack;
    if (!node_read_exe(tree->root, n, &n->exe_dev, &n->exe_ino))
        n->exe_dev = 0, n->exe_ino = 0;
    /* the pages counted so far belong to the previous program */
    n->pub.sample.known &= ~(1u << SAMPLE_UNIQUE | 1u << SAMPLE_HUGE | 1u << SAMPLE_HEAP |
                             1u << SAMPLE_STACK | 1u << SAMPLE_PSS | 1u << SAMPLE_PEAK);
    n->unique_due_ns = n->unique_begun_ns = n->unique_done_ns = 0;
    n->unique_failures = 0;
    n->fork_is_known = false;
    settle_execed(n, now_ns);
    tree_emit(tree, n, PROCESS_EXECED, now_ns);
}

static void refresh_node(struct proc_tree *tree, struct tree_node *n, uint64_t now_ns)
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
        return; /* no fd is available at the moment; the process may still be alive */
    n->threads = st.threads;
    n->size_bytes = st.size_bytes;
    n->minor_faults = st.minor_faults;
    node_keep_fds(tree->root, &tree->fds, n);
    note_names(tree, n, &st, now_ns);
    if (st.ppid != n->pub.info.ppid) {
        n->pub.info.ppid = st.ppid;
        tree->kin_dirty = true;
        n->role_dirty = true;
        tree_emit(tree, n, PROCESS_REPARENTED, now_ns);
    }
}

/* Handles PID, which belongs to the job. It may be a known process, a new one, or a reused pid. */
static int meet_pid(struct proc_tree *tree, int32_t pid, uint64_t now_ns)
{
    struct tree_node *n = tree_find(tree, pid);
    if (n && n->walk != tree->walk)
        refresh_node(tree, n, now_ns);
    if (n && n->pub.alive)
        return 0;
    int r = tree_birth(tree, pid, false, now_ns);
    /* the process has exited or cannot be read now, so the next walk tries again */
    return r == -ENOMEM ? r : 0;
}

static int meet_children(struct proc_tree *tree, const struct tree_node *n, uint64_t now_ns)
{
    int r = kin_children(tree, n);
    for (size_t i = 0; r != -ENOMEM && i < tree->kin.count; i++) {
        int met = meet_pid(tree, tree->kin.pid[i], now_ns);
        if (met < 0)
            r = met;
    }
    return r == -ENOMEM ? r : 0;
}

/* Walks the nodes from index FROM on, including nodes that are added during the walk. */
static int walk_nodes(struct proc_tree *tree, size_t from, uint64_t now_ns)
{
    int r = 0;
    for (size_t i = from; r == 0 && i < tree->count; i++) {
        struct tree_node *n = tree->nodes[i];
        if (n->pub.alive && n->walk != tree->walk)
            refresh_node(tree, n, now_ns);
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
        r = meet_pid(tree, pid, now_ns);
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
    if (getpwuid_r(uid, &pw, text, sizeof text, &found) == 0 && found)
        snprintf(buf, size, "%s", pw.pw_name);
    else
        snprintf(buf, size, "uid %u", uid);
    return buf;
}

static int explain_refusal(struct err *err, int code, int32_t pid)
{
    switch (code) {
    case -ESRCH:
        return err_set(err, code, "there is no process %d; `ps -e` lists the running processes",
                       pid);
    case -EPERM:
    case -EACCES:
        return err_set(err, -EACCES,
                       "cannot read process %d: /proc hides the processes of other users; "
                       "run ebb as root",
                       pid);
    default:
        return err_set(err, code, "cannot read process %d: %s", pid, strerror(-code));
    }
}

/* Checks that the memory of a root process may be read: if maps cannot be opened, neither unique
 * memory nor PSS is available. */
static int check_root(struct proc_tree *tree, struct tree_node *n, struct err *err)
{
    int32_t pid = n->pub.info.id.pid;
    struct proc_status st = {0};
    if (node_read_status(tree->root, n, &st) == 0 && (st.has & STATUS_TGID) && st.tgid != pid)
        return proc_refuse_thread(tree->root, pid, st.tgid, err);
    AUTO_CLOSE int maps = node_open(tree->root, n, "maps", O_RDONLY);
    if ((maps == -EACCES || maps == -EPERM) && st.uid == geteuid())
        return err_set(err, -EACCES,
                       "cannot read the memory of process %d: it has capabilities that ebb lacks, "
                       "or is not dumpable; CAP_SYS_PTRACE is required",
                       pid);
    if (maps == -EACCES || maps == -EPERM) {
        char name[64];
        return err_set(err, -EACCES,
                       "process %d belongs to %s; run ebb as that user or as root to read its "
                       "memory",
                       pid, user_name(st.uid, name, sizeof name));
    }
    /* a process whose main thread is exiting reports no memory, but its other threads do */
    if (n->size_bytes == 0 && n->tid == 0 && n->threads <= 1)
        return err_set(err, -EINVAL, "%d is a kernel thread: it has no memory of its own", pid);
    return 0;
}

int tree_check_pid(struct proc_tree *tree, int32_t pid, struct err *err)
{
    struct tree_node *n = NULL;
    int r = pid > 0 ? node_new(tree->root, &tree->fds, pid, false, &n) : -ESRCH;
    if (r < 0)
        return explain_refusal(err, r, pid);
    r = check_root(tree, n, err);
    node_free(&tree->fds, n);
    return r;
}

int proc_tree_add(struct proc_tree *tree, int32_t pid, uint64_t now_ns, struct err *err)
{
    /* a process is checked before it is added, so that a rejected process causes no event */
    int r = tree_check_pid(tree, pid, err);
    if (r < 0)
        return r;
    begin_walk(tree);
    size_t from = tree->count;
    struct tree_node *n = tree_find(tree, pid);
    if (n)
        refresh_node(tree, n, now_ns);
    if (n && n->pub.alive)
        n->pub.is_root = true;
    else
        r = tree_birth(tree, pid, true, now_ns);
    if (r < 0)
        return explain_refusal(err, r, pid);
    r = walk_nodes(tree, from, now_ns);
    for (size_t i = from; i < tree->count; i++)
        /* a root process may have been running for a long time, so its libraries are probably
         * mapped already */
        tree->nodes[i]->maps_due_ns = now_ns;
    end_walk(tree, now_ns);
    return r < 0 ? explain_refusal(err, r, pid) : 0;
}

int proc_tree_add_below(struct proc_tree *tree, int32_t pid, uint64_t now_ns, struct err *err)
{
    struct tree_node **below =
        reallocarray(tree->below, tree->below_count + 1, sizeof(struct tree_node *));
    if (!below)
        return explain_refusal(err, -ENOMEM, pid);
    tree->below = below;
    struct tree_node *n;
    int r = pid > 0 ? node_new(tree->root, &tree->fds, pid, false, &n) : -ESRCH;
    if (r < 0)
        return explain_refusal(err, r, pid);
    tree->below[tree->below_count++] = n;
    begin_walk(tree);
    size_t from = tree->count;
    r = walk_below(tree, now_ns);
    if (r == 0)
        r = walk_nodes(tree, from, now_ns);
    end_walk(tree, now_ns);
    return r < 0 ? explain_refusal(err, r, pid) : 0;
}

int proc_tree_add_all(struct proc_tree *tree, uint64_t now_ns, struct err *err)
{
    tree->all = true;
    int r = proc_tree_walk(tree, now_ns);
    return r < 0 ? err_set(err, r, "cannot list processes: %s", strerror(-r)) : 0;
}
