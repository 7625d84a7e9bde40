/* Creates, limits, joins, reads, kills and removes the job's cgroup. */
#include "guard/cgroup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/number.h"
#include "guard/cgroup_place.h"
#include "proc/limit.h"
#include "proc/read.h"
#include "proc/tree.h"

const struct guard_cgroup guard_cgroup_none = {
    .join_fd = -1, .fds = {-1, -1, -1}, .peak_fd = -1, .kill_fd = -1, .events_fd = -1};

enum limit_kind guard_cgroup_kind(const struct guard_cgroup *g)
{
    return g->is_v2 ? LIMIT_CGROUP_V2 : LIMIT_CGROUP_V1;
}

int guard_cgroup_reopen(const struct proc_root *root, struct guard_cgroup *g)
{
    const char *events = g->is_v2 ? "memory.events" : "memory.oom_control";
    const char *peak = limit_files(guard_cgroup_kind(g))->peak;
    g->fds = limit_fds_open(root, guard_cgroup_kind(g), g->dir);
    g->join_fd = cgroup_open(root, g->dir, "cgroup.procs", O_WRONLY);
    g->events_fd = cgroup_open(root, g->dir, events, O_RDONLY);
    g->kill_fd = cgroup_open(root, g->dir, "cgroup.kill", O_WRONLY);
    g->peak_fd = cgroup_open(root, g->dir, peak, O_RDWR);
    g->peak_is_resettable = g->peak_fd >= 0;
    if (g->peak_fd < 0)
        g->peak_fd = cgroup_open(root, g->dir, peak, O_RDONLY);
    if (g->join_fd < 0)
        return g->join_fd;
    return g->fds.usage < 0 || g->fds.stat < 0 || g->events_fd < 0 ? -ENOENT : 0;
}

/* Creates the folder DIR. If it exists already, this process has left it behind, so it is removed
 * first. */
static int make_anew(const struct proc_root *root, const char *dir)
{
    struct guard_cgroup old = guard_cgroup_none;
    if (mkdirat(root->cgroup_fd, dir, 0755) == 0)
        return 0;
    if (errno != EEXIST)
        return -errno;
    snprintf(old.dir, sizeof old.dir, "%s", dir);
    int r = guard_cgroup_remove(root, &old, 0);
    if (r == 0 && mkdirat(root->cgroup_fd, dir, 0755) < 0)
        r = -errno;
    return r;
}

static int make_group(const struct proc_root *root, const struct guard_place *p, const char *name,
                      char ret[GUARD_CGROUP_PATH])
{
    char dir[GUARD_CGROUP_PATH];
    int n = snprintf(dir, sizeof dir, "%s/%s", p->group.dir, name);
    if (n < 0 || (size_t)n >= sizeof dir)
        return -ENAMETOOLONG;
    int r = make_anew(root, dir);
    if (r < 0)
        return r;
    /* a job that runs as another user must be able to read its own limit, whatever the umask */
    (void)!fchmodat(root->cgroup_fd, dir, 0755, 0);
    /* below a threaded group, the new group is "domain invalid" and cannot contain processes */
    char type[64];
    if (p->is_v2 && cgroup_read(root, dir, "cgroup.type", type, sizeof type) >= 0 &&
        strcmp(type, "domain\n") != 0) {
        (void)unlinkat(root->cgroup_fd, dir, AT_REMOVEDIR);
        return -EOPNOTSUPP;
    }
    memcpy(ret, dir, sizeof dir);
    return 0;
}

static int make_at(const struct proc_root *root, const struct guard_place *p, const char *name,
                   struct guard_cgroup *ret)
{
    struct guard_cgroup g = guard_cgroup_none;
    int r = guard_place_divide(root, p);
    if (r == 0)
        r = make_group(root, p, name, g.dir);
    if (r < 0)
        return r;
    g.is_v2 = p->is_v2;
    r = guard_cgroup_reopen(root, &g);
    if (r < 0) {
        (void)guard_cgroup_remove(root, &g, 0);
        return r;
    }
    /* With memory.oom.group, an OOM kill kills the whole group. Otherwise a trainer that lost one
     * worker would hang in its next collective operation. The file exists only in v2, since kernel
     * 4.19. */
    if (p->is_v2)
        (void)cgroup_write(root, g.dir, "memory.oom.group", "1");
    *ret = g;
    return 0;
}

/* Stores in WHY the reason why no group can be created at P. If WHY already contains a reason,
 * keeps it: the first reason is about our own group. */
static void explain_place(const struct guard_place *p, int error, struct err *why)
{
    if (why->text[0] != '\0')
        return;
    if (error == -EOPNOTSUPP)
        err_set(why, 0, "cgroup: %s does not delegate its memory controller", guard_place_name(p));
    else
        err_set(why, 0, "cgroup: cannot create a group below %s: %s", guard_place_name(p),
                strerror(-error));
}

/* Creates the group in the v2 hierarchy if V2 is set, else in the v1 hierarchy. First tries below
 * our own group, then below its ancestors. Returns 0, -ENOENT if the hierarchy does not exist, or
 * the -errno of the first attempt. */
static int make_in(const struct proc_root *root, bool v2, const char *name,
                   struct guard_cgroup *ret, struct err *why)
{
    struct guard_place p;
    int first = 0;
    for (int r = guard_place_own(root, v2, &p); r == 0; r = guard_place_up(root, &p)) {
        int made = make_at(root, &p, name, ret);
        if (made == 0)
            return 0;
        explain_place(&p, made, why);
        first = first == 0 ? made : first;
        /* The next ancestor is tried only if permission or the controller is missing. It is not
         * tried if our own group is busy or full, because the job belongs below our own group. */
        if (made != -EACCES && made != -EPERM && made != -EOPNOTSUPP)
            break;
    }
    return first == 0 ? -ENOENT : first;
}

int guard_cgroup_make(const struct proc_root *root, const char *name, uint64_t limit_bytes,
                      struct guard_cgroup *ret, struct err *err)
{
    struct guard_cgroup g = guard_cgroup_none;
    struct process_id id;
    err_set(err, 0, "%s", "");
    if (guard_cgroup_name_parse(name, &id) < 0)
        return err_set(err, -EINVAL, "cgroup: invalid name \"%s\"", name);
    int r = make_in(root, false, name, &g, err);
    if (r < 0) {
        int in_v2 = make_in(root, true, name, &g, err);
        r = in_v2 == 0 || r == -ENOENT ? in_v2 : r;
    }
    if (r < 0 && err->text[0] == '\0')
        err_set(err, 0, "cgroup: found no hierarchy with a memory controller below /sys/fs/cgroup");
    if (r < 0)
        return r;
    err_set(err, 0, "%s", "");
    int limited = limit_bytes > 0 ? guard_cgroup_limit(root, &g, limit_bytes) : 0;
    if (limited < 0)
        err_set(err, 0, "cgroup: cannot set the limit of %s: %s", g.dir, strerror(-limited));
    *ret = g;
    return 0;
}

/* limit_v1 and limit_v2 limit both memory and swap, and return the result for memory. *RET_SWAP is
 * the result for swap, or 0 if the kernel does not account for swap. */
static int limit_v1(const struct proc_root *root, const char *dir, const char *text, int *ret_swap)
{
    int r = cgroup_write(root, dir, "memory.limit_in_bytes", text);
    int swap = cgroup_write(root, dir, "memory.memsw.limit_in_bytes", text);
    /* The kernel rejects a memory limit above the limit of memory plus swap. If the first write
     * failed for this reason, it is repeated, because the limit of memory plus swap has now been
     * raised. */
    if (r == -EINVAL && swap == 0)
        r = cgroup_write(root, dir, "memory.limit_in_bytes", text);
    *ret_swap = swap == -ENOENT || swap == -EOPNOTSUPP ? 0 : swap;
    return r;
}

static int limit_v2(const struct proc_root *root, const char *dir, const char *text, int *ret_swap)
{
    int swap = cgroup_write(root, dir, "memory.swap.max", "0");
    *ret_swap = swap == -ENOENT ? 0 : swap;
    return cgroup_write(root, dir, "memory.max", text);
}

int guard_cgroup_limit(const struct proc_root *root, struct guard_cgroup *g, uint64_t limit_bytes)
{
    char text[32];
    int swap = 0;
    if (!g->dir[0])
        return -EOPNOTSUPP;
    if (limit_bytes == 0)
        return -EINVAL;
    snprintf(text, sizeof text, "%" PRIu64, limit_bytes);
    int r = g->is_v2 ? limit_v2(root, g->dir, text, &swap) : limit_v1(root, g->dir, text, &swap);
    g->is_limited = g->is_limited || r == 0;
    return r < 0 ? r : swap;
}

int guard_cgroup_join(const struct guard_cgroup *g)
{
    return g->join_fd < 0 ? 0 : io_write_all(g->join_fd, "0", 1);
}

pid_t guard_cgroup_fork(const struct proc_root *root, const struct guard_cgroup *g, bool *ret_is_in)
{
    AUTO_CLOSE int fd = g->is_v2 && g->dir[0]
                            ? openat(root->cgroup_fd, g->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                            : -1;
    struct clone_args args = {
        .flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (unsigned)fd};
    *ret_is_in = true;
    pid_t pid = fd < 0 ? -1 : (pid_t)syscall(SYS_clone3, &args, sizeof args);
    if (pid >= 0)
        return pid;
    *ret_is_in = false;
    return fork();
}

int guard_cgroup_kill(const struct guard_cgroup *g)
{
    return g->kill_fd < 0 ? -EOPNOTSUPP : io_write_all(g->kill_fd, "1", 1);
}

int guard_cgroup_oom_kills(const struct guard_cgroup *g, uint64_t *ret)
{
    char text[512];
    ssize_t len = g->events_fd < 0 ? -ENODATA : io_pread_small(g->events_fd, text, sizeof text);
    return len < 0 || proc_keyed_parse(text, (size_t)len, "oom_kill", ret) < 0 ? -ENODATA : 0;
}

/* ---- names and removal ---- */

/* Groups that a job created are searched and removed only down to this depth. */
enum { DEPTH_MAX = 16 };

void guard_cgroup_name(const struct proc_root *root, char ret[64])
{
    char text[16];
    struct proc_stat stat = {.start_ticks = 0};
    int64_t pid = 0;
    /* Our pid is read from /proc/self, because guard_cgroup_tidy will look it up in the same /proc.
     * getpid() may return another number, because /proc may belong to another pid namespace. */
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

/* Calls FN for each folder in PARENT until FN returns false. Returns false if FN returned false or
 * if PARENT cannot be read. */
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

/* Removes the empty groups in the group NAME, and then NAME itself if it has become empty. Visits
 * at most *USER levels, including NAME. */
static bool remove_tree(int parent, const char *name, void *user)
{
    int left = *(const int *)user - 1;
    if (unlinkat(parent, name, AT_REMOVEDIR) == 0 || left <= 0)
        return true;
    AUTO_CLOSE int fd = open_group(parent, name);
    if (fd >= 0)
        (void)each_folder(fd, remove_tree, &left);
    (void)unlinkat(parent, name, AT_REMOVEDIR);
    return true; /* continue with other groups even if this one is busy */
}

/* Returns true if neither NAME nor any group in it contains a process. Returns false if the groups
 * are nested too deeply. */
static bool is_empty_tree(int parent, const char *name, void *user)
{
    char first[8];
    int left = *(const int *)user - 1;
    AUTO_CLOSE int fd = open_group(parent, name);
    return fd >= 0 && left >= 0 && io_read_small(fd, "cgroup.procs", first, sizeof first) == 0 &&
           each_folder(fd, is_empty_tree, &left);
}

/* Returns the last component of DIR if guard_cgroup_name generated it, else NULL: other folders
 * must not be removed. */
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

/* Returns false only if the process that created the folder is known to be dead. */
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

/* ---- processes outside the group ----
 *
 * Processes may be moved out of our group by root, and by a user who owns another group. */

enum { MEMBERS_TEXT_MAX = 1 << 20 };

static int compare_members(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* Parses cgroup.procs into a sorted array of pids. RET must have space for one pid per two bytes of
 * TEXT. */
static size_t members_parse(const char *text, int32_t *ret)
{
    size_t n = 0;
    char *end;
    for (const char *p = text; *p != '\0'; p = *end != '\0' ? end + 1 : end) {
        ret[n] = (int32_t)strtol(p, &end, 10);
        n += end > p;
    }
    qsort(ret, n, sizeof *ret, compare_members);
    return n;
}

/* Returns true if the process is in G or in a group below it, or has exited. In a cgroup namespace
 * only the end of the path is visible, so the function searches the path for the unique name of G's
 * folder. */
static bool is_below(const struct proc_root *root, const struct guard_cgroup *g, int32_t pid)
{
    char text[4096], path[LIMIT_PATH_MAX];
    struct proc_statm statm;
    const char *folder = strrchr(g->dir, '/');
    ssize_t len = proc_read(root, pid, "cgroup", text, sizeof text);
    if (len < 0 || !folder || proc_cgroup_parse(text, (size_t)len, g->is_v2, path, sizeof path) < 0)
        return true;
    const char *at = strstr(path, folder);
    if (at && (at[strlen(folder)] == '/' || at[strlen(folder)] == '\0'))
        return true;
    return proc_read_statm(root, pid, &statm) < 0 || statm.size_pages == 0;
}

uint64_t guard_cgroup_left(const struct proc_root *root, const struct guard_cgroup *g,
                           struct proc_tree *tree, int32_t *ret_pid)
{
    char path[GUARD_CGROUP_PATH + 32];
    AUTO_BUF struct buf text = {0};
    uint64_t bytes = 0;
    snprintf(path, sizeof path, "%s/cgroup.procs", g->dir);
    int32_t *members = NULL;
    if (g->dir[0] != '\0' && io_read_all(root->cgroup_fd, path, MEMBERS_TEXT_MAX, &text) == 0)
        members = malloc((text.len / 2 + 1) * sizeof *members);
    size_t n = members ? members_parse(buf_str(&text), members) : 0;
    for (size_t i = 0; members && i < proc_tree_count(tree); i++) {
        const struct proc_node *node = proc_tree_at(tree, i);
        const int32_t pid = node->info.id.pid;
        if (bsearch(&pid, members, n, sizeof *members, compare_members) ||
            !sample_has(&node->sample, SAMPLE_RSS) || is_below(root, g, pid))
            continue;
        bytes += node->sample.v[SAMPLE_RSS];
        *ret_pid = pid;
    }
    free(members);
    return bytes;
}
