/* Reads one process through its open fds, and verifies that the fds still belong to the same
 * process. */
#include "proc/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/io.h"

/* Converts -ENOENT to -ESRCH: after a process was reaped, a lookup in its folder returns ENOENT,
 * whereas a read returns ESRCH. An empty file also means that the process is dead. */
static ssize_t gone_or(ssize_t r)
{
    return r == -ENOENT || r == 0 ? -ESRCH : r;
}

static int open_at(int dirfd, const char *path, int flags)
{
    int fd = openat(dirfd, path, flags | O_CLOEXEC | O_NOCTTY);
    return fd < 0 ? (int)gone_or(-errno) : fd;
}

static ssize_t read_below(int dirfd, const char *path, char *buf, size_t size)
{
    return gone_or(io_read_small(dirfd, path, buf, size));
}

static int parse_stat(ssize_t len, const char *text, struct proc_stat *ret)
{
    return len < 0 ? (int)len : proc_stat_parse(text, (size_t)len, ret);
}

/* Opens the folder of PID and reads stat. The folder and stat belong to the same process, even if
 * the pid is being reused. */
static int open_process(const struct proc_root *root, int32_t pid, struct proc_stat *ret)
{
    char path[NODE_PATH_MAX], text[1024];
    snprintf(path, sizeof path, "%d", pid);
    int fd = open_at(root->proc_fd, path, O_RDONLY | O_DIRECTORY);
    int r = fd < 0 ? fd : parse_stat(read_below(fd, "stat", text, sizeof text), text, ret);
    if (r < 0)
        cleanup_close(&fd);
    return r < 0 ? r : fd;
}

int node_folder(const struct proc_root *root, const struct tree_node *n, int *ret_temporary)
{
    *ret_temporary = -1;
    if (n->dir_fd >= 0)
        return n->dir_fd;
    struct proc_stat st;
    int fd = open_process(root, n->pub.info.id.pid, &st);
    if (fd >= 0 && st.start_ticks != n->pub.info.id.start_ticks) {
        close(fd);
        return -ESRCH;
    }
    if (fd >= 0)
        *ret_temporary = fd;
    return fd;
}

/* Writes the path of NAME relative to the process's folder. */
static void memory_path(const struct tree_node *n, const char *name, char path[NODE_PATH_MAX])
{
    if (n->tid == 0)
        snprintf(path, NODE_PATH_MAX, "%s", name);
    else
        snprintf(path, NODE_PATH_MAX, "task/%d/%s", n->tid, name);
}

int node_open(const struct proc_root *root, const struct tree_node *n, const char *name, int flags)
{
    AUTO_CLOSE int temporary = -1;
    int dir = node_folder(root, n, &temporary);
    if (dir < 0)
        return dir;
    char path[NODE_PATH_MAX];
    memory_path(n, name, path);
    return open_at(dir, path, flags);
}

static ssize_t node_read(const struct proc_root *root, const struct tree_node *n, int kept_fd,
                         const char *name, char *buf, size_t size)
{
    if (kept_fd >= 0)
        return gone_or(io_pread_small(kept_fd, buf, size));
    AUTO_CLOSE int fd = node_open(root, n, name, O_RDONLY);
    return fd < 0 ? fd : gone_or(io_pread_small(fd, buf, size));
}

int node_read_stat(const struct proc_root *root, struct tree_node *n, struct proc_stat *ret)
{
    char text[1024];
    ssize_t len;
    if (n->stat_fd >= 0) {
        len = gone_or(io_pread_small(n->stat_fd, text, sizeof text));
    } else if (n->dir_fd >= 0) {
        len = read_below(n->dir_fd, "stat", text, sizeof text);
    } else {
        char path[NODE_PATH_MAX];
        snprintf(path, sizeof path, "%d/stat", n->pub.info.id.pid);
        len = read_below(root->proc_fd, path, text, sizeof text);
    }
    struct proc_stat st;
    int r = parse_stat(len, text, &st);
    if (r < 0)
        return r;
    if (st.start_ticks != n->pub.info.id.start_ticks)
        return -ESRCH; /* the pid has been reused */
    *ret = st;
    return 0;
}

int node_read_statm(const struct proc_root *root, struct tree_node *n, struct proc_statm *ret)
{
    if (n->statm_fd < 0 && n->dir_fd < 0 && n->tid == 0) {
        /* stat contains both resident pages and start time, so no separate identity check is
         * needed */
        struct proc_stat st;
        int r = node_read_stat(root, n, &st);
        if (r < 0)
            return r;
        *ret = (struct proc_statm){st.size_bytes / root->page_bytes, st.rss_pages, 0};
        return 0;
    }
    char text[256];
    ssize_t len = node_read(root, n, n->statm_fd, "statm", text, sizeof text);
    return len < 0 ? (int)len : proc_statm_parse(text, (size_t)len, ret);
}

int node_read_status(const struct proc_root *root, struct tree_node *n, struct proc_status *ret)
{
    char text[4096];
    ssize_t len = node_read(root, n, n->status_fd, "status", text, sizeof text);
    return len < 0 ? (int)len : proc_status_parse(text, (size_t)len, ret);
}

bool node_read_exe(const struct proc_root *root, const struct tree_node *n, dev_t *ret_dev,
                   ino_t *ret_ino)
{
    AUTO_CLOSE int temporary = -1;
    int dir = node_folder(root, n, &temporary);
    struct stat st;
    if (dir < 0 || fstatat(dir, "exe", &st, 0) < 0)
        return false;
    *ret_dev = st.st_dev;
    *ret_ino = st.st_ino;
    return true;
}

static void keep_fd(struct fd_budget *budget, int dir, const char *path, int *fd)
{
    if (*fd >= 0 || budget->used >= budget->max)
        return;
    int opened = open_at(dir, path, O_RDONLY);
    if (opened >= 0) {
        *fd = opened;
        budget->used++;
    } else if (opened == -EMFILE || opened == -ENFILE) {
        /* no more fds can be opened, so the budget is reduced to the number of open fds */
        budget->max = budget->used;
    }
}

static void drop_fd(struct fd_budget *budget, int *fd)
{
    if (*fd < 0)
        return;
    close(*fd);
    *fd = -1;
    budget->used--;
}

/* Opens the most frequently read files first, because the budget may not suffice for all files. */
static void keep_files(struct fd_budget *budget, struct tree_node *n)
{
    char path[NODE_PATH_MAX];
    memory_path(n, "statm", path);
    keep_fd(budget, n->dir_fd, path, &n->statm_fd);
    keep_fd(budget, n->dir_fd, "stat", &n->stat_fd);
    snprintf(path, sizeof path, "task/%d/children", n->pub.info.id.pid);
    keep_fd(budget, n->dir_fd, path, &n->children_fd);
    memory_path(n, "status", path);
    keep_fd(budget, n->dir_fd, path, &n->status_fd);
}

void node_keep_fds(const struct proc_root *root, struct fd_budget *budget, struct tree_node *n)
{
    if (n->dir_fd < 0 && budget->used < budget->max) {
        int temporary = -1;
        if (node_folder(root, n, &temporary) >= 0) {
            n->dir_fd = temporary;
            budget->used++;
        }
    }
    if (n->dir_fd >= 0)
        keep_files(budget, n);
}

static void find_living_thread(const struct proc_root *root, struct fd_budget *budget,
                               struct tree_node *n)
{
    AUTO_CLOSE int temporary = -1;
    int dir = node_folder(root, n, &temporary);
    struct pid_dir tasks;
    if (dir < 0 || pid_dir_open(&tasks, dir, "task") < 0)
        return;
    int32_t old = n->tid, tid;
    n->tid = 0;
    while (n->tid == 0 && pid_dir_next(&tasks, &tid)) {
        char path[NODE_PATH_MAX], text[256];
        struct proc_statm m;
        snprintf(path, sizeof path, "%d/statm", tid);
        ssize_t len = tid == n->pub.info.id.pid ? 0 : read_below(tasks.fd, path, text, sizeof text);
        if (len > 0 && proc_statm_parse(text, (size_t)len, &m) == 0 && m.size_pages > 0)
            n->tid = tid;
    }
    pid_dir_close(&tasks);
    if (n->tid != old) {
        drop_fd(budget, &n->statm_fd);
        drop_fd(budget, &n->status_fd);
        node_keep_fds(root, budget, n);
    }
}

bool node_is_gone(const struct proc_root *root, struct fd_budget *budget, struct tree_node *n)
{
    struct proc_stat st;
    int r = node_read_stat(root, n, &st);
    if (r == -ESRCH)
        return true;
    if (r < 0 || !proc_stat_is_dead(&st))
        return false; /* a process that is exiting reports no memory, but is not dead yet */
    if (st.threads > 1)
        find_living_thread(root, budget, n);
    else
        n->tid = 0;
    return n->tid == 0;
}

static struct tree_node *node_alloc(int32_t pid, const struct proc_stat *st)
{
    struct tree_node *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->dir_fd = n->statm_fd = n->stat_fd = n->status_fd = n->children_fd = -1;
    n->pub.alive = true;
    n->pub.info.id = (struct process_id){pid, st->start_ticks};
    n->pub.info.ppid = st->ppid;
    n->threads = st->threads;
    n->size_bytes = st->size_bytes;
    n->start_stack = st->start_stack;
    n->pub.info.comm_len = n->comm_seen_len = st->comm_len;
    memcpy(n->pub.info.comm, st->comm, sizeof n->pub.info.comm);
    memcpy(n->comm_seen, st->comm, sizeof n->comm_seen);
    return n;
}

int node_new(const struct proc_root *root, struct fd_budget *budget, int32_t pid,
             bool with_memory_only, struct tree_node **ret)
{
    struct proc_stat st;
    AUTO_CLOSE int dir = open_process(root, pid, &st);
    if (dir < 0)
        return dir;
    if (proc_stat_is_dead(&st) && st.threads <= 1)
        return -ESRCH;
    if (with_memory_only && st.size_bytes == 0)
        return -ESRCH;
    struct tree_node *n = node_alloc(pid, &st);
    if (!n)
        return -ENOMEM;
    if (budget->used < budget->max) {
        n->dir_fd = dir;
        dir = -1;
        budget->used++;
        keep_files(budget, n);
    }
    if (proc_stat_is_dead(&st) && node_is_gone(root, budget, n)) {
        node_free(budget, n);
        return -ESRCH;
    }
    if (!node_read_exe(root, n, &n->exe_dev, &n->exe_ino))
        n->exe_dev = 0, n->exe_ino = 0;
    *ret = n;
    return 0;
}

void node_free(struct fd_budget *budget, struct tree_node *n)
{
    if (!n)
        return;
    drop_fd(budget, &n->statm_fd);
    drop_fd(budget, &n->stat_fd);
    drop_fd(budget, &n->status_fd);
    drop_fd(budget, &n->children_fd);
    drop_fd(budget, &n->dir_fd);
    free(n);
}
