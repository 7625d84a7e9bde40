/* Who the children of a process are: by task/TID/children of all its threads, or by a scan of
 * /proc where the kernel has no such files. */
#include "proc/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/cleanup.h"

static int pid_list_add(struct pid_list *list, int32_t pid)
{
    if (!ARRAY_ROOM(list->pid, list->count, list->cap))
        return -ENOMEM;
    list->pid[list->count++] = pid;
    return 0;
}

/* Up to and with the last blank, so that a number is never cut; all of it if there is none. */
static size_t whole_numbers(const char *s, size_t len)
{
    for (size_t i = len; i > 0; i--)
        if (s[i - 1] == ' ' || s[i - 1] == '\n')
            return i;
    return len;
}

/* The kernel fills one page at a time: a read that leaves room for one more number was the last,
 * and that saves every small process a second system call. */
enum { CHILDREN_TEXT = 4096, CHILDREN_ROOM = 16 };

static int add_children_file(struct pid_list *list, int fd)
{
    char text[CHILDREN_TEXT];
    int32_t pids[CHILDREN_TEXT / 2];
    off_t at = 0;
    for (;;) {
        ssize_t n = pread(fd, text, sizeof(text), at);
        if (n <= 0)
            return n < 0 ? -errno : 0;
        size_t len = whole_numbers(text, (size_t)n);
        size_t found = proc_pids_parse(text, len, pids, sizeof(pids) / sizeof(pids[0]));
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

/* -ENOENT of a thread that is there: this kernel has no children files. */
static int children_of_main_thread(struct proc_tree *tree, const struct tree_node *n, int dir)
{
    if (n->children_fd >= 0) {
        tree->has_children_files = true;
        return add_children_file(&tree->kin, n->children_fd);
    }
    char path[NODE_PATH_MAX];
    snprintf(path, sizeof(path), "task/%d/children", n->pub.info.id.pid);
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
        snprintf(path, sizeof(path), "%d/children", tid);
        AUTO_CLOSE int fd = open_children(tasks.fd, path);
        r = fd < 0 ? fd : add_children_file(&tree->kin, fd);
        if (r < 0 && r != -ENOENT && r != -ESRCH)
            result = r; /* a thread that has ended is no failure */
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
        return 0; /* once a walk */
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
        qsort(tree->scan, tree->scan_count, sizeof(*tree->scan), by_ppid);
    tree->scan_walk = tree->walk;
    return r;
}

static int children_by_scan(struct proc_tree *tree, int32_t ppid)
{
    int r = scan_machine(tree);
    size_t low = 0, high = tree->scan_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (tree->scan[middle].ppid < ppid)
            low = middle + 1;
        else
            high = middle;
    }
    for (; r == 0 && low < tree->scan_count && tree->scan[low].ppid == ppid; low++)
        r = pid_list_add(&tree->kin, tree->scan[low].pid);
    return r;
}

int kin_children(struct proc_tree *tree, const struct tree_node *n)
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
