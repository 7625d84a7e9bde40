/* Every limit above a process's head: all its ancestor cgroups, its rlimits, the host. */
#include "proc/limit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/io.h"

/* Takes the next line off [*S, END), without its newline; false at the end. */
static bool line_next(const char **s, const char *end, const char **ret, size_t *ret_len)
{
    if (*s >= end)
        return false;
    const char *nl = memchr(*s, '\n', (size_t)(end - *s));
    *ret = *s;
    *ret_len = (size_t)((nl != NULL ? nl : end) - *s);
    *s = nl != NULL ? nl + 1 : end;
    return true;
}

/* Takes the next field, ended by SEP, off [*S, END); an absent one is empty. */
static void field_next(const char **s, const char *end, char sep, const char **ret, size_t *ret_len)
{
    const char *stop = *s < end ? memchr(*s, sep, (size_t)(end - *s)) : NULL;
    *ret = *s;
    *ret_len = (size_t)((stop != NULL ? stop : end) - *s);
    *s = stop != NULL ? stop + 1 : end;
}

static bool is(const char *s, size_t len, const char *text)
{
    return len == strlen(text) && memcmp(s, text, len) == 0;
}

/* True when WORD is one of the comma-separated words of S. */
static bool list_has(const char *s, size_t len, const char *word)
{
    const char *end = s + len, *item;
    size_t item_len;
    while (s < end) {
        field_next(&s, end, ',', &item, &item_len);
        if (is(item, item_len, word))
            return true;
    }
    return false;
}

static int copy_path(const char *s, size_t len, char *ret, size_t size)
{
    if (len >= size)
        return -ENAMETOOLONG;
    memcpy(ret, s, len);
    ret[len] = '\0';
    return 0;
}

int limit_cgroup_parse(const char *s, size_t len, bool v2, char *ret, size_t size)
{
    const char *end = s + len, *line;
    size_t line_len;
    while (line_next(&s, end, &line, &line_len)) {
        const char *p = line, *stop = line + line_len, *id, *controllers;
        size_t id_len, controllers_len;
        field_next(&p, stop, ':', &id, &id_len);
        field_next(&p, stop, ':', &controllers, &controllers_len);
        if (p >= stop || *p != '/') /* the rest is the path, colons and all */
            continue;
        bool match = v2 ? is(id, id_len, "0") && controllers_len == 0
                        : list_has(controllers, controllers_len, "memory");
        if (match)
            return copy_path(p, (size_t)(stop - p), ret, size);
    }
    return -ENOENT;
}

/* 36 35 0:32 /docker/ab /sys/fs/cgroup/memory rw,relatime master:9 - cgroup cgroup rw,memory */
int limit_mount_parse(const char *s, size_t len, bool v2, char *ret, size_t size)
{
    static const char below[] = "/sys/fs/cgroup";
    const char *end = s + len, *line;
    size_t line_len;
    while (line_next(&s, end, &line, &line_len)) {
        const char *p = line, *stop = line + line_len, *f[5], *type, *source;
        size_t n[5], type_len, source_len;
        for (size_t i = 0; i < 5; i++)
            field_next(&p, stop, ' ', &f[i], &n[i]);
        const char *dash = p < stop ? memmem(p, (size_t)(stop - p), " - ", 3) : NULL;
        if (dash == NULL || n[3] == 0 || n[4] < sizeof(below) - 1 ||
            memcmp(f[4], below, sizeof(below) - 1) != 0)
            continue;
        p = dash + 3;
        field_next(&p, stop, ' ', &type, &type_len);
        field_next(&p, stop, ' ', &source, &source_len);
        bool match = v2 ? is(type, type_len, "cgroup2")
                        : is(type, type_len, "cgroup") && list_has(p, (size_t)(stop - p), "memory");
        if (match)
            return copy_path(f[3], n[3], ret, size);
    }
    return -ENOENT;
}

/* Blanks, then a decimal number up to END or the next space. */
static int number_after_spaces(const char *p, const char *end, uint64_t *ret)
{
    uint64_t v = 0;
    while (p < end && (*p == ' ' || *p == '\t'))
        p++;
    if (p == end || *p < '0' || *p > '9')
        return -EBADMSG;
    for (; p < end && *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(*p - '0'), &v))
            return -EBADMSG;
    if (p < end && *p != ' ')
        return -EBADMSG;
    *ret = v;
    return 0;
}

int limit_rlimit_parse(const char *s, size_t len, const char *name, bool *ret_unlimited,
                       uint64_t *ret)
{
    const char *end = s + len, *line;
    size_t line_len, name_len = strlen(name);
    while (line_next(&s, end, &line, &line_len)) {
        const char *p = line + name_len, *stop = line + line_len;
        if (line_len <= name_len || memcmp(line, name, name_len) != 0 || *p != ' ')
            continue;
        while (p < stop && *p == ' ')
            p++;
        if ((size_t)(stop - p) >= 9 && memcmp(p, "unlimited", 9) == 0) {
            *ret_unlimited = true;
            return 0;
        }
        int r = number_after_spaces(p, stop, ret);
        if (r == 0)
            *ret_unlimited = false;
        return r;
    }
    return -ENOENT;
}

int limit_vmdata_parse(const char *s, size_t len, uint64_t *ret_bytes)
{
    static const char name[] = "VmData:";
    const char *end = s + len, *line;
    size_t line_len;
    while (line_next(&s, end, &line, &line_len)) {
        uint64_t kib;
        if (line_len < sizeof(name) - 1 || memcmp(line, name, sizeof(name) - 1) != 0)
            continue;
        int r = number_after_spaces(line + sizeof(name) - 1, line + line_len, &kib);
        if (r < 0 || kib > UINT64_MAX / 1024)
            return -EBADMSG;
        *ret_bytes = kib * 1024;
        return 0;
    }
    return -ENOENT;
}

void limit_proc_path(int32_t pid, const char *name, char ret[32])
{
    if (pid == 0)
        snprintf(ret, 32, "self/%s", name);
    else
        snprintf(ret, 32, "%d/%s", pid, name);
}

int limit_open(const struct proc_root *root, const char *dir, const char *name)
{
    char path[LIMIT_PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return openat(root->cgroup_fd, path, O_RDONLY | O_CLOEXEC);
}

const struct limit_files *limit_files(enum limit_kind kind)
{
    /* v1's plain keys count this cgroup alone, while its usage counts the subtree */
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

/* Where the hierarchy is mounted below cgroup_fd, by layout; NULL where it is not. */
static const char *find_base(int cgroup_fd, bool v2)
{
    if (!v2)
        return faccessat(cgroup_fd, "memory", F_OK, 0) == 0 ? "memory" : NULL;
    if (faccessat(cgroup_fd, "cgroup.controllers", F_OK, 0) == 0)
        return ".";
    return faccessat(cgroup_fd, "unified/cgroup.controllers", F_OK, 0) == 0 ? "unified" : NULL;
}

/* PATH as seen from a mount whose root is MOUNT; the mount itself where PATH lies outside. */
static const char *below_mount(const char *path, const char *mount)
{
    size_t n = strlen(mount);
    while (n > 0 && mount[n - 1] == '/')
        n--;
    if (strncmp(path, mount, n) != 0 || (path[n] != '/' && path[n] != '\0'))
        return path;
    return path + n;
}

/* True where PATH has a component "..": it lies outside our cgroup namespace. */
static bool leads_out(const char *path)
{
    for (const char *p = path; (p = strstr(p, "/..")) != NULL; p += 3)
        if (p[3] == '/' || p[3] == '\0')
            return true;
    return false;
}

/* Room for every controller's line at the greatest path length would be more; a process whose
 * memory line lies behind the first 16 KiB has no cgroup for us. */
enum { CGROUP_TEXT_MAX = 16384, MOUNT_TEXT_MAX = 1 << 20 };

static void mount_root(const struct proc_root *root, bool v2, char *ret, size_t size)
{
    struct buf text = {0};
    ret[0] = '\0';
    if (io_read_all(root->proc_fd, "self/mountinfo", MOUNT_TEXT_MAX, &text) == 0 && text.len > 0)
        (void)limit_mount_parse(text.data, text.len, v2, ret, size);
    buf_fini(&text);
}

/* A zombie has no memory left, and in v1 no longer a cgroup: it claims to be in "/". */
static bool is_zombie(const struct proc_root *root, int32_t pid)
{
    char name[32], text[256];
    struct proc_statm statm;
    limit_proc_path(pid, "statm", name);
    ssize_t len = io_read_small(root->proc_fd, name, text, sizeof(text));
    return len >= 0 && proc_statm_parse(text, (size_t)len, &statm) == 0 && statm.size_pages == 0;
}

void limit_group_find(const struct proc_root *root, int32_t pid, bool v2, struct limit_group *g)
{
    char name[32], text[CGROUP_TEXT_MAX], path[LIMIT_PATH_MAX], mount[LIMIT_PATH_MAX];
    const char *base = root->cgroup_fd >= 0 ? find_base(root->cgroup_fd, v2) : NULL;
    limit_proc_path(pid, "cgroup", name);
    ssize_t len = io_read_small(root->proc_fd, name, text, sizeof(text));
    if (base == NULL || len < 0 || (g->known && is_zombie(root, pid)))
        return;
    if (limit_cgroup_parse(text, (size_t)len, v2, path, sizeof(path)) < 0) {
        g->known = false;
        return;
    }
    mount_root(root, v2, mount, sizeof(mount));
    const char *below = below_mount(path, mount);
    g->known = true;
    g->base_len = strlen(base);
    int n = snprintf(g->dir, sizeof(g->dir), "%s%s", base, strcmp(below, "/") == 0 ? "" : below);
    /* In a container the path may be the host's, and not exist here: what is mounted is ours. */
    if (n < 0 || (size_t)n >= sizeof(g->dir) || leads_out(below) ||
        faccessat(root->cgroup_fd, g->dir, F_OK, 0) < 0)
        snprintf(g->dir, sizeof(g->dir), "%s", base);
}

struct limit_fds limit_fds_open(const struct proc_root *root, enum limit_kind kind, const char *dir)
{
    const struct limit_files *files = limit_files(kind);
    if (files == NULL)
        return LIMIT_NO_FDS;
    return (struct limit_fds){
        .usage = limit_open(root, dir, files->usage),
        .stat = limit_open(root, dir, files->stat),
        .kernel = files->kernel != NULL ? limit_open(root, dir, files->kernel) : -1,
    };
}

void limit_fds_close(struct limit_fds *fds)
{
    cleanup_close(&fds->usage);
    cleanup_close(&fds->stat);
    cleanup_close(&fds->kernel);
    *fds = LIMIT_NO_FDS;
}

void limit_stats_parse(const struct limit_files *files, const char *s, size_t len,
                       struct limit_stats *ret)
{
    *ret = (struct limit_stats){0};
    for (unsigned i = 0; i < LIMIT_STATS; i++)
        if (files->keys[i] != NULL && proc_keyed_parse(s, len, files->keys[i], &ret->v[i]) == 0)
            ret->known |= 1u << i;
}

/* A file that holds one number; -EBADMSG for any other. */
static int number_read(int fd, uint64_t *ret)
{
    char text[64];
    bool unlimited;
    ssize_t len = fd >= 0 ? io_pread_small(fd, text, sizeof(text)) : -EBADF;
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
    int r = number_read(fds->usage, &usage);
    if (r < 0)
        return r;
    (void)number_read(fds->kernel, &kernel);
    ssize_t len = fds->stat >= 0 ? io_pread_small(fds->stat, text, sizeof(text)) : 0;
    limit_stats_parse(limit_files(kind), text, len > 0 ? (size_t)len : 0, &stats);
    /* the files are read one after the other, so the difference may go below nothing */
    uint64_t off = limit_reclaimable(&stats) + kernel;
    *ret_usage = usage;
    *ret = usage > off ? usage - off : 0;
    return 0;
}

static ssize_t read_in(int fd, const char *dir, const char *name, char *buf, size_t size)
{
    char path[LIMIT_PATH_MAX + 64];
    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return io_read_small(fd, path, buf, size);
}

static bool read_number(int fd, const char *dir, const char *name, uint64_t *ret)
{
    char text[64];
    bool unlimited;
    ssize_t len = read_in(fd, dir, name, text, sizeof(text));
    return len >= 0 && proc_cgroup_number_parse(text, (size_t)len, &unlimited, ret) == 0 &&
           !unlimited;
}

/* Less head-room is nearer; of two at the same distance the one that kills. */
static bool is_nearer(const struct machine_limit *a, const struct machine_limit *b)
{
    if (a->headroom_bytes != b->headroom_bytes)
        return a->headroom_bytes < b->headroom_bytes;
    return b->soft && !a->soft;
}

static void consider(struct limit_found *best, bool *found, struct machine_limit *limit,
                     const char *dir)
{
    uint64_t used = limit->used_known ? limit->used_bytes : 0;
    limit->headroom_bytes = limit->limit_bytes > used ? limit->limit_bytes - used : 0;
    if (*found && !is_nearer(limit, &best->limit))
        return;
    *found = true;
    best->limit = *limit;
    snprintf(best->dir, sizeof(best->dir), "%s", dir);
}

static void consider_group(const struct proc_root *root, enum limit_kind kind, const char *dir,
                           size_t base_len, struct limit_found *best, bool *found)
{
    const int fd = root->cgroup_fd;
    static const char *const names[][2] = {{"memory.limit_in_bytes", NULL},
                                           {"memory.max", "memory.high"}};
    const char *const *name = names[kind == LIMIT_CGROUP_V2];
    struct machine_limit l = {.kind = kind};
    uint64_t usage;
    bool looked = false;

    for (int i = 0; i < 2 && name[i] != NULL; i++) {
        if (!read_number(fd, dir, name[i], &l.limit_bytes))
            continue;
        if (!looked) {
            struct limit_fds fds = limit_fds_open(root, kind, dir);
            l.used_known = limit_used_read(kind, &fds, &usage, &l.used_bytes) == 0;
            limit_fds_close(&fds);
            l.peak_known = read_number(fd, dir, limit_files(kind)->peak, &l.peak_bytes);
            looked = true;
        }
        l.soft = i == 1;
        snprintf(l.where, sizeof(l.where), "%.255s", dir[base_len] != '\0' ? dir + base_len : "/");
        consider(best, found, &l, dir);
    }
}

/* The leaf may say unlimited while its parent does not: every ancestor counts. */
static void consider_ancestors(const struct proc_root *root, enum limit_kind kind,
                               const struct limit_group *g, struct limit_found *best, bool *found)
{
    char dir[LIMIT_PATH_MAX];
    if (root->cgroup_fd < 0 || !g->known)
        return;
    snprintf(dir, sizeof(dir), "%s", g->dir);
    for (;;) {
        consider_group(root, kind, dir, g->base_len, best, found);
        char *slash = strrchr(dir + g->base_len, '/');
        if (slash == NULL)
            return;
        *slash = '\0';
    }
}

static void consider_rlimits(const struct proc_root *root, int32_t pid, struct limit_found *best,
                             bool *found)
{
    char name[32], limits[4096], text[4096];
    bool unlimited;
    uint64_t bytes;
    limit_proc_path(pid, "limits", name);
    ssize_t len = io_read_small(root->proc_fd, name, limits, sizeof(limits));
    if (len < 0)
        return;
    if (limit_rlimit_parse(limits, (size_t)len, "Max address space", &unlimited, &bytes) == 0 &&
        !unlimited) {
        struct machine_limit l = {
            .kind = LIMIT_RLIMIT_AS, .limit_bytes = bytes, .where = "RLIMIT_AS"};
        struct proc_statm statm;
        limit_proc_path(pid, "statm", name);
        ssize_t n = io_read_small(root->proc_fd, name, text, sizeof(text));
        l.used_known = n >= 0 && proc_statm_parse(text, (size_t)n, &statm) == 0;
        if (l.used_known)
            l.used_bytes = statm.size_pages * root->page_bytes;
        consider(best, found, &l, "");
    }
    if (limit_rlimit_parse(limits, (size_t)len, "Max data size", &unlimited, &bytes) == 0 &&
        !unlimited) {
        struct machine_limit l = {
            .kind = LIMIT_RLIMIT_DATA, .limit_bytes = bytes, .where = "RLIMIT_DATA"};
        limit_proc_path(pid, "status", name);
        ssize_t n = io_read_small(root->proc_fd, name, text, sizeof(text));
        l.used_known = n >= 0 && limit_vmdata_parse(text, (size_t)n, &l.used_bytes) == 0;
        consider(best, found, &l, "");
    }
}

int limit_find(const struct proc_root *root, int32_t pid, const struct proc_meminfo *mem,
               const struct limit_group *v1, const struct limit_group *v2, struct limit_found *ret)
{
    struct limit_found best = {0};
    bool found = false;
    if (mem != NULL) {
        struct machine_limit host = {.kind = LIMIT_HOST,
                                     .limit_bytes = mem->total_bytes,
                                     .used_known = true,
                                     .where = "host"};
        host.used_bytes =
            mem->total_bytes > mem->available_bytes ? mem->total_bytes - mem->available_bytes : 0;
        consider(&best, &found, &host, "");
    }
    consider_ancestors(root, LIMIT_CGROUP_V1, v1, &best, &found);
    consider_ancestors(root, LIMIT_CGROUP_V2, v2, &best, &found);
    consider_rlimits(root, pid, &best, &found);
    if (!found)
        return -ENODATA;
    *ret = best;
    return 0;
}
