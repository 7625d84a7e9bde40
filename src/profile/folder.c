/* Looking for heap histories in a run folder. */
#include "profile/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"

enum { GROWN_LEAST = 1 << 20 };

void folder_heap_fini(struct folder_heap *h)
{
    profile_free(h->profile);
    free(h->other);
    *h = (struct folder_heap){0};
}

double folder_live_bytes(const struct profile *p)
{
    size_t n = profile_working(p);
    return n ? profile_live_at(&p->readings[n - 1]) : 0;
}

double folder_grown_bytes(const struct profile *p)
{
    size_t n = profile_working(p), at = 0;
    double sum = 0;
    if (n < 2)
        return 0;
    const struct profile_reading *last = &p->readings[n - 1];
    const struct profile_reading *half =
        profile_reading_at(p, p->start_ns + (last->t_ns - p->start_ns) / 2);
    for (size_t i = 0; i < last->count; i++) {
        const struct profile_held *now = &last->held[i];
        sum += profile_sure_growth(profile_held_by(half ? half : p->readings, &at, now->site), now);
    }
    return sum > GROWN_LEAST ? sum : 0;
}

/* heap.PID.ebbheap, or heap.PID-N.ebbheap. */
static bool is_history(const char *name)
{
    int pid, n, end = 0;
    if (sscanf(name, "heap.%d.ebbheap%n", &pid, &end) == 1 && end > 0 && !name[end])
        return true;
    return sscanf(name, "heap.%d-%d.ebbheap%n", &pid, &n, &end) == 2 && end > 0 && !name[end];
}

static int read_file(int dirfd, const char *name, struct folder_heap *ret, struct err *err)
{
    struct folder_heap h = {0};
    struct stat st;
    const char *slash = strrchr(name, '/');
    AUTO_CLOSE int fd = openat(dirfd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0)
        return err_set(err, -errno, "cannot read %s: %s", name, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(err, -EINVAL, "%s is no heap history: not a file", name);
    int r = store_read(fd, &h.profile, &h.damage, err);
    if (r < 0)
        return err_prefix(err, r, "%s", name);
    snprintf(h.name, sizeof h.name, "%s", slash ? slash + 1 : name);
    h.dev = st.st_dev;
    h.ino = st.st_ino;
    *ret = h;
    return 0;
}

/* What a process was before an exec is over. */
static bool is_better(const struct folder_heap *h, const struct folder_heap *than)
{
    if (!than->profile)
        return true;
    if (h->profile->pid == than->profile->pid && h->profile->start_ns != than->profile->start_ns)
        return h->profile->start_ns > than->profile->start_ns;
    double grown = folder_grown_bytes(h->profile), grown_than = folder_grown_bytes(than->profile);
    if (grown != grown_than)
        return grown > grown_than;
    return folder_live_bytes(h->profile) > folder_live_bytes(than->profile);
}

/* H is not taken: it is told of in BEST, and let go. Out of memory it is let go alone. */
static void pass_over(struct folder_heap *best, struct folder_heap *h)
{
    struct folder_other *more = reallocarray(best->other, best->others + 1, sizeof *more);
    if (more) {
        best->other = more;
        more[best->others++] =
            (struct folder_other){h->profile->pid, folder_live_bytes(h->profile)};
    }
    folder_heap_fini(h);
}

static void prefer_heap(struct folder_heap *best, struct folder_heap *h)
{
    struct folder_heap old = *best;
    *best = *h;
    best->other = old.other;
    best->others = old.others;
    old.other = NULL;
    if (old.profile)
        pass_over(best, &old);
}

static int by_live(const void *a, const void *b)
{
    const struct folder_other *x = a, *y = b;
    return (x->live_bytes < y->live_bytes) - (x->live_bytes > y->live_bytes);
}

/* The first failure is told where nothing could be read at all. */
static int read_histories(DIR *dir, int32_t pid, struct folder_heap *best, struct err *err)
{
    const struct dirent *entry;
    int first = 0;
    while ((entry = readdir(dir))) {
        struct folder_heap h = {0};
        struct err why = {""};
        if (!is_history(entry->d_name))
            continue;
        int r = read_file(dirfd(dir), entry->d_name, &h, &why);
        if (r < 0 && first == 0)
            first = err_set(err, r, "%s", why.text);
        if (!h.profile)
            continue;
        if ((pid == 0 || h.profile->pid == pid) && is_better(&h, best))
            prefer_heap(best, &h);
        else
            pass_over(best, &h);
    }
    return first;
}

static int read_folder(DIR *dir, int32_t pid, struct folder_heap *ret, struct err *err)
{
    struct folder_heap best = {0};
    int first = read_histories(dir, pid, &best, err);
    if (best.profile) {
        if (best.others > 1)
            qsort(best.other, best.others, sizeof *best.other, by_live);
        *ret = best;
        return 0;
    }
    bool has_others = best.others > 0;
    folder_heap_fini(&best);
    if (first < 0)
        return first;
    return has_others ? err_set(err, -ENOENT, "there is no heap history of process %d", (int)pid)
                      : err_set(err, -ENOENT,
                                "there is no heap history; ebb run records one of every dynamic "
                                "program that lives for two seconds, unless --no-heap or "
                                "EBB_HEAP=0 keeps it from that");
}

void folder_each(const char *path, folder_fn *fn, void *user)
{
    const struct dirent *entry;
    DIR *dir = opendir(path);
    while (dir && (entry = readdir(dir))) {
        struct folder_heap h = {0};
        struct err why = {""};
        if (is_history(entry->d_name) && read_file(dirfd(dir), entry->d_name, &h, &why) == 0)
            fn(user, h.profile);
        folder_heap_fini(&h);
    }
    if (dir)
        closedir(dir);
}

int folder_heap_read(const char *path, int32_t pid, struct folder_heap *ret, struct err *err)
{
    DIR *dir = opendir(path);
    if (!dir && errno == ENOTDIR) {
        int r = read_file(AT_FDCWD, path, ret, err);
        if (r == 0 && pid != 0 && ret->profile->pid != pid) {
            folder_heap_fini(ret);
            r = err_set(err, -ENOENT, "%s is of another process than %d", path, (int)pid);
        }
        return r;
    }
    if (!dir)
        return err_set(err, -errno, "cannot read %s: %s", path, strerror(errno));
    int r = read_folder(dir, pid, ret, err);
    closedir(dir);
    return r < 0 ? err_prefix(err, r, "%s", path) : 0;
}
