/* Finds all limits that apply to a process: those of its ancestor cgroups, its rlimits, and the
 * host's memory. */
#include "proc/limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "base/number.h"
#include "proc/read.h"

const struct limit_files *limit_files(enum limit_kind kind)
{
    /* In cgroup v1, keys of memory.stat without the prefix "total_" cover only the cgroup itself,
     * while the cgroup's usage covers its whole subtree. */
    static const struct limit_files v1 = {
        .usage = "memory.usage_in_bytes",
        .stat = "memory.stat",
        .peak = "memory.max_usage_in_bytes",
        .kernel = "memory.kmem.usage_in_bytes",
        .keys = {"total_inactive_file", "total_active_file", "total_inactive_anon",
                 "total_active_anon", "total_unevictable", "total_rss", "total_cache", NULL},
    };
    static const struct limit_files v2 = {
        .usage = "memory.current",
        .stat = "memory.stat",
        .peak = "memory.peak",
        .keys = {"inactive_file", "active_file", "inactive_anon", "active_anon", "unevictable",
                 "anon", "file", "slab_reclaimable"},
    };
    if (kind == LIMIT_CGROUP_V1)
        return &v1;
    return kind == LIMIT_CGROUP_V2 ? &v2 : NULL;
}

/* Returns the folder below cgroup_fd at which the cgroup hierarchy is mounted, or NULL if it is not
 * mounted. */
static const char *find_base(int cgroup_fd, bool v2)
{
    if (!v2)
        return faccessat(cgroup_fd, "memory", F_OK, 0) == 0 ? "memory" : NULL;
    if (faccessat(cgroup_fd, "cgroup.controllers", F_OK, 0) == 0)
        return ".";
    return faccessat(cgroup_fd, "unified/cgroup.controllers", F_OK, 0) == 0 ? "unified" : NULL;
}

/* Makes PATH relative to a mount whose root is MOUNT. Returns PATH itself if PATH is outside the
 * mount. */
static const char *below_mount(const char *path, const char *mount)
{
    size_t n = strlen(mount);
    while (n > 0 && mount[n - 1] == '/')
        n--;
    if (strncmp(path, mount, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return path;
    return path + n;
}

/* True if PATH has a component "..", which means that the cgroup is outside our cgroup
 * namespace. */
static bool leads_out(const char *path)
{
    for (const char *p = path; (p = strstr(p, "/..")) != NULL; p += 3)
        if (p[3] == '/' || p[3] == '\0')
            return true;
    return false;
}

/* Maximum sizes of the files that are read. /proc/PID/cgroup can exceed 16 KiB if paths are long.
 * If the memory controller's line is beyond the first 16 KiB, the cgroup is treated as unknown. */
enum { CGROUP_TEXT_MAX = 16384, MOUNT_TEXT_MAX = 1 << 20 };

static void mount_root(const struct proc_root *root, bool v2, char *ret, size_t size)
{
    AUTO_BUF struct buf text = {0};
    ret[0] = '\0';
    if (io_read_all(root->proc_fd, "self/mountinfo", MOUNT_TEXT_MAX, &text) == 0 && text.len > 0)
        (void)proc_mount_parse(text.data, text.len, v2, ret, size);
}

void limit_group_find(const struct proc_root *root, int32_t pid, bool v2, struct limit_group *g)
{
    char text[CGROUP_TEXT_MAX], path[LIMIT_PATH_MAX], mount[LIMIT_PATH_MAX];
    struct proc_statm statm;
    const char *base = root->cgroup_fd >= 0 ? find_base(root->cgroup_fd, v2) : NULL;
    ssize_t len = proc_read(root, pid, "cgroup", text, sizeof text);
    /* a zombie has no memory, and v1 reports "/" as its cgroup */
    if (!base || len < 0 ||
        (g->known && proc_read_statm(root, pid, &statm) == 0 && statm.size_pages == 0))
        return;
    if (proc_cgroup_parse(text, (size_t)len, v2, path, sizeof path) < 0) {
        g->known = false;
        return;
    }
    mount_root(root, v2, mount, sizeof mount);
    const char *below = below_mount(path, mount);
    g->known = true;
    g->base_len = strlen(base);
    int n = snprintf(g->dir, sizeof g->dir, "%s%s", base, strcmp(below, "/") == 0 ? "" : below);
    /* In a container, /proc may show the host's path, which does not exist here. The mount itself
     * is then the container's cgroup. */
    if (n < 0 || (size_t)n >= sizeof g->dir || leads_out(below) ||
        faccessat(root->cgroup_fd, g->dir, F_OK, 0) < 0)
        snprintf(g->dir, sizeof g->dir, "%s", base);
}

struct limit_fds limit_fds_open(const struct proc_root *root, enum limit_kind kind, const char *dir)
{
    const struct limit_files *files = limit_files(kind);
    if (!files)
        return LIMIT_NO_FDS;
    return (struct limit_fds){
        .usage = cgroup_open(root, dir, files->usage, O_RDONLY),
        .stat = cgroup_open(root, dir, files->stat, O_RDONLY),
        .kernel = files->kernel ? cgroup_open(root, dir, files->kernel, O_RDONLY) : -1,
    };
}

void limit_fds_close(struct limit_fds *fds)
{
    close_fd(&fds->usage);
    close_fd(&fds->stat);
    close_fd(&fds->kernel);
}

void limit_stats_parse(const struct limit_files *files, const char *s, size_t len,
                       struct limit_stats *ret)
{
    *ret = (struct limit_stats){0};
    for (unsigned i = 0; i < LIMIT_STATS; i++)
        if (files->keys[i] && proc_keyed_parse(s, len, files->keys[i], &ret->v[i]) == 0)
            ret->known |= 1u << i;
}

int limit_number_read(int fd, uint64_t *ret)
{
    char text[64];
    bool unlimited;
    ssize_t len = fd >= 0 ? io_pread_small(fd, text, sizeof text) : -EBADF;
    if (len < 0)
        return (int)len;
    return proc_cgroup_number_parse(text, (size_t)len, &unlimited, ret) < 0 || unlimited ? -EBADMSG
                                                                                         : 0;
}

int limit_used_read(enum limit_kind kind, const struct limit_fds *fds, uint64_t *ret_usage,
                    uint64_t *ret)
{
    char text[8192];
    struct limit_stats stats;
    uint64_t usage, kernel = 0;
    int r = limit_number_read(fds->usage, &usage);
    if (r < 0)
        return r;
    (void)limit_number_read(fds->kernel, &kernel);
    ssize_t len = fds->stat >= 0 ? io_pread_small(fds->stat, text, sizeof text) : 0;
    limit_stats_parse(limit_files(kind), text, len > 0 ? (size_t)len : 0, &stats);
    /* the two files are read at different times, so the difference could be negative */
    *ret_usage = usage;
    *ret = u64_minus(usage, limit_reclaimable(&stats) + kernel);
    return 0;
}

/* Replaces *BEST with LIMIT if LIMIT has less headroom, or has the same headroom and is a hard
 * limit. */
static void consider_limit(struct limit_found *best, bool *found, struct machine_limit *limit,
                           const char *dir)
{
    limit->headroom_bytes =
        u64_minus(limit->limit_bytes, limit->used_known ? limit->used_bytes : 0);
    const struct machine_limit *b = &best->limit;
    if (*found && (limit->headroom_bytes > b->headroom_bytes ||
                   (limit->headroom_bytes == b->headroom_bytes && (!b->soft || limit->soft))))
        return;
    *found = true;
    best->limit = *limit;
    snprintf(best->dir, sizeof best->dir, "%s", dir);
}

static void consider_group(const struct proc_root *root, enum limit_kind kind, const char *dir,
                           size_t base_len, struct limit_found *best, bool *found)
{
    static const char *const names[][2] = {{"memory.limit_in_bytes", NULL},
                                           {"memory.max", "memory.high"}};
    const char *const *name = names[kind == LIMIT_CGROUP_V2];
    struct machine_limit l = {.kind = kind};
    uint64_t usage;
    bool is_read = false;
    for (int i = 0; i < 2 && name[i]; i++) {
        if (!cgroup_read_number(root, dir, name[i], &l.limit_bytes))
            continue;
        if (!is_read) {
            struct limit_fds fds = limit_fds_open(root, kind, dir);
            l.used_known = limit_used_read(kind, &fds, &usage, &l.used_bytes) == 0;
            limit_fds_close(&fds);
            l.peak_known = cgroup_read_number(root, dir, limit_files(kind)->peak, &l.peak_bytes);
            is_read = true;
        }
        l.soft = i == 1;
        snprintf(l.where, sizeof l.where, "%.255s", dir[base_len] != '\0' ? dir + base_len : "/");
        consider_limit(best, found, &l, dir);
    }
}

/* Considers every ancestor cgroup, because a cgroup without a limit may have a parent with a
 * limit. */
static void consider_ancestors(const struct proc_root *root, enum limit_kind kind,
                               const struct limit_group *g, struct limit_found *best, bool *found)
{
    char dir[LIMIT_PATH_MAX];
    if (root->cgroup_fd < 0 || !g->known)
        return;
    snprintf(dir, sizeof dir, "%s", g->dir);
    for (;;) {
        consider_group(root, kind, dir, g->base_len, best, found);
        char *slash = strrchr(dir + g->base_len, '/');
        if (!slash)
            return;
        *slash = '\0';
    }
}

int limit_rlimit_used_parse(const struct proc_root *root, enum limit_kind kind, const char *s,
                            size_t len, uint64_t *ret)
{
    struct proc_statm statm;
    struct proc_status status;
    if (kind == LIMIT_RLIMIT_AS) {
        if (proc_statm_parse(s, len, &statm) < 0)
            return -EBADMSG;
        *ret = statm.size_pages * root->page_bytes;
    } else {
        if (proc_status_parse(s, len, &status) < 0 || !(status.has & STATUS_DATA))
            return -EBADMSG;
        *ret = status.data_bytes;
    }
    return 0;
}

static void consider_rlimits(const struct proc_root *root, int32_t pid, struct limit_found *best,
                             bool *found)
{
    static const struct {
        enum limit_kind kind;
        const char *name, *where;
    } rlimits[] = {{LIMIT_RLIMIT_AS, "Max address space", "RLIMIT_AS"},
                   {LIMIT_RLIMIT_DATA, "Max data size", "RLIMIT_DATA"}};
    char limits[4096], text[4096];
    ssize_t len = proc_read(root, pid, "limits", limits, sizeof limits);
    for (size_t i = 0; len >= 0 && i < sizeof rlimits / sizeof *rlimits; i++) {
        struct machine_limit l = {.kind = rlimits[i].kind};
        bool unlimited;
        if (proc_rlimit_parse(limits, (size_t)len, rlimits[i].name, &unlimited, &l.limit_bytes) <
                0 ||
            unlimited)
            continue;
        ssize_t n = proc_read(root, pid, limit_rlimit_file(l.kind), text, sizeof text);
        l.used_known =
            n >= 0 && limit_rlimit_used_parse(root, l.kind, text, (size_t)n, &l.used_bytes) == 0;
        snprintf(l.where, sizeof l.where, "%s", rlimits[i].where);
        consider_limit(best, found, &l, "");
    }
}

int limit_find(const struct proc_root *root, int32_t pid, const struct proc_meminfo *mem,
               const struct limit_group *v1, const struct limit_group *v2, struct limit_found *ret)
{
    struct limit_found best = {0};
    bool found = false;
    if (mem) {
        struct machine_limit host = {.kind = LIMIT_HOST,
                                     .limit_bytes = mem->total_bytes,
                                     .used_known = true,
                                     .where = "host"};
        host.used_bytes = u64_minus(mem->total_bytes, mem->available_bytes);
        consider_limit(&best, &found, &host, "");
    }
    consider_ancestors(root, LIMIT_CGROUP_V1, v1, &best, &found);
    consider_ancestors(root, LIMIT_CGROUP_V2, v2, &best, &found);
    consider_rlimits(root, pid, &best, &found);
    if (!found)
        return -ENODATA;
    *ret = best;
    return 0;
}
