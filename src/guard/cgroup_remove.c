/* Removes a job's cgroup with the groups that the job created in it, and the cgroups of killed ebb
 * processes. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/number.h"
#include "guard/cgroup.h"
#include "proc/read.h"

/* Maximum depth of the groups that a job created. */
enum { DEPTH_MAX = 16 };

void guard_cgroup_name(const struct proc_root *root, char ret[64])
{
    char text[16];
    struct proc_stat stat = {.start_ticks = 0};
    int64_t pid = 0;
    /* The pid comes from this /proc and not from getpid(), because guard_cgroup_tidy looks the pid
     * up in this /proc, which may belong to another pid namespace. */
    ssize_t len = readlinkat(root->proc_fd, "self", text, sizeof text);
    if (len <= 0 || number_parse_i64(text, (size_t)len, &pid) < 0)
        pid = getpid();
    (void)proc_read_stat(root, 0, &stat);
    snprintf(ret, 64, "ebb-%" PRId32 "-%" PRIu64, (int32_t)pid, stat.start_ticks);
}

int guard_cgroup_name_parse(const char *name, struct process_id *ret)
{
    char again[64];
    int64_t pid, ticks;
    const char *dash = strncmp(name, "ebb-", 4) == 0 ? strchr(name + 4, '-') : NULL;
    if (!dash || number_parse_i64(name + 4, (size_t)(dash - name - 4), &pid) < 0 ||
        number_parse_i64(dash + 1, strlen(dash + 1), &ticks) < 0 || pid <= 0 || pid > INT32_MAX ||
        ticks < 0)
        return -EINVAL;
    snprintf(again, sizeof again, "ebb-%" PRId64 "-%" PRId64, pid, ticks);
    if (strcmp(again, name) != 0)
        return -EINVAL;
    *ret = (struct process_id){.pid = (int32_t)pid, .start_ticks = (uint64_t)ticks};
    return 0;
}

static int open_group(int parent, const char *name)
{
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return fd < 0 ? -errno : fd;
}

/* Calls FN for each folder in PARENT until FN returns false. Returns false in that case, or if
 * PARENT cannot be read. */
typedef bool folder_fn(int parent, const char *name, void *user);
static bool each_folder(int parent, folder_fn *fn, void *user)
{
    DIR *d = io_open_folder(parent, ".");
    bool go_on = d;
    for (struct dirent *e; go_on && (e = readdir(d));)
        if (e->d_type == DT_DIR && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            go_on = fn(parent, e->d_name, user);
    if (d)
        closedir(d);
    return go_on;
}

/* Removes NAME and the empty groups in it, down to *USER levels. */
static bool remove_tree(int parent, const char *name, void *user)
{
    int left = *(const int *)user - 1;
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || left <= 0)
        return true;
    AUTO_CLOSE int fd = open_group(parent, name);
    if (fd >= 0)
        (void)each_folder(fd, remove_tree, &left);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
    return true; /* goes on with other groups even if this one is busy */
}

/* Returns true if NAME and all groups in it have no process. Returns false if the groups are nested
 * too deep. */
static bool is_empty_tree(int parent, const char *name, void *user)
{
    char first[8];
    int left = *(const int *)user - 1;
    AUTO_CLOSE int fd = open_group(parent, name);
    return fd >= 0 && left >= 0 && io_read_small(fd, "cgroup.procs", first, sizeof first) == 0 &&
           each_folder(fd, is_empty_tree, &left);
}

/* Returns the last component of DIR if guard_cgroup_name made it, or NULL: other folders must not
 * be removed. */
static const char *own_name(const char *dir)
{
    struct process_id id;
    const char *slash = strrchr(dir, '/');
    return slash && guard_cgroup_name_parse(slash + 1, &id) == 0 ? slash + 1 : NULL;
}

static int remove_once(int cgroup_fd, const char *dir)
{
    int depth = DEPTH_MAX;
    if (unlinkat(cgroup_fd, dir, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    if (errno != EBUSY && errno != ENOTEMPTY)
        return -errno;
    (void)remove_tree(cgroup_fd, dir, &depth);
    if (unlinkat(cgroup_fd, dir, AT_REMOVEDIR) == 0 || errno == ENOENT)
        return 0;
    return errno == ENOTEMPTY ? -EBUSY : -errno;
}

static int remove_folder(int cgroup_fd, const char *dir, uint64_t until_ns)
{
    if (!own_name(dir))
        return -EINVAL;
    for (int wait_ms = 1;; wait_ms = wait_ms < 16 ? wait_ms * 2 : 16) {
        int r = remove_once(cgroup_fd, dir);
        if (r != -EBUSY || clock_mono_ns() >= until_ns)
            return r;
        (void)poll(NULL, 0, wait_ms);
    }
}

int guard_cgroup_remove(const struct proc_root *root, struct guard_cgroup *g, uint64_t until_ns)
{
    limit_fds_close(&g->fds);
    close_fd(&g->join_fd);
    close_fd(&g->peak_fd);
    close_fd(&g->kill_fd);
    close_fd(&g->events_fd);
    int r = g->dir[0] ? remove_folder(root->cgroup_fd, g->dir, until_ns) : 0;
    if (r == 0)
        *g = guard_cgroup_none;
    return r;
}

/* True if the process that created the folder is alive, or if that is unknown. */
static bool is_maker_alive(const struct proc_root *root, const struct process_id *id)
{
    struct proc_stat stat;
    int r = proc_read_stat(root, id->pid, &stat);
    if (r < 0)
        return r != -ENOENT && r != -ESRCH;
    return stat.start_ticks == id->start_ticks && !proc_stat_is_dead(&stat);
}

bool guard_cgroup_maker_lives(const struct proc_root *root, const char *dir)
{
    const char *name = own_name(dir);
    struct process_id id;
    return !name || guard_cgroup_name_parse(name, &id) < 0 || is_maker_alive(root, &id);
}

struct tidying {
    const struct proc_root *root;
    const char *own;
    int removed;
};

static bool tidy_one(int parent, const char *name, void *user)
{
    struct tidying *t = user;
    struct process_id id;
    int depth = DEPTH_MAX;
    if (strcmp(name, t->own) != 0 && guard_cgroup_name_parse(name, &id) == 0 &&
        !is_maker_alive(t->root, &id) && is_empty_tree(parent, name, &depth) &&
        remove_once(parent, name) == 0)
        t->removed++;
    return true;
}

int guard_cgroup_tidy(const struct proc_root *root, const struct guard_cgroup *g)
{
    const char *own = own_name(g->dir);
    if (!own)
        return 0;
    AUTO_FREE char *parent = strndup(g->dir, (size_t)(own - g->dir - 1));
    AUTO_CLOSE int fd = !parent ? -1 : open_group(root->cgroup_fd, parent);
    struct tidying t = {.root = root, .own = own};
    if (fd >= 0)
        (void)each_folder(fd, tidy_one, &t);
    return t.removed;
}
