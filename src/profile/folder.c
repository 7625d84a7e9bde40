/* Finds heap histories in a run folder. */
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

/* Matches heap.PID.ebbheap and heap.PID-N.ebbheap. */
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
        return err_set(err, -EINVAL, "%s is not a heap history: not a regular file", name);
    int r = store_read(fd, &h.profile, &h.damage, err);
    if (r < 0)
        return err_prefix(err, r, "%s", name);
    snprintf(h.name, sizeof h.name, "%s", slash ? slash + 1 : name);
    h.dev = st.st_dev;
    h.ino = st.st_ino;
    *ret = h;
    return 0;
}

/* Returns the host or the GPU part of a profile, or NULL if the process used no GPU. */
static struct profile *profile_part(const struct folder_heap *h, enum folder_memory memory)
{
    return memory == FOLDER_GPU ? h->profile->gpu : h->profile;
}

/* Returns true if P is shown in preference to THAN. If a process has two histories, the newer is
 * shown, because the older ended with an exec. */
static bool is_better(const struct profile *p, const struct profile *than)
{
    if (p->pid == than->pid && p->start_ns != than->start_ns)
        return p->start_ns > than->start_ns;
    double grown = folder_grown_bytes(p), grown_than = folder_grown_bytes(than);
    if (grown != grown_than)
        return grown > grown_than;
    return folder_live_bytes(p) > folder_live_bytes(than);
}

static int by_live(const void *a, const void *b)
{
    const struct folder_other *x = a, *y = b;
    return (x->live_bytes < y->live_bytes) - (x->live_bytes > y->live_bytes);
}

void folder_each(const char *path, folder_heap_fn *fn, void *user)
{
    DIR *dir = opendir(path);
    const struct dirent *entry;
    struct err why = {""};
    if (!dir) {
        int r = err_set(&why, -errno, "cannot be read: %s", strerror(errno));
        fn(user, NULL, r, &why);
        return;
    }
    while ((entry = readdir(dir))) {
        struct folder_heap h = {0};
        if (!is_history(entry->d_name))
            continue;
        int r = read_file(dirfd(dir), entry->d_name, &h, &why);
        fn(user, &h, r, &why);
        folder_heap_fini(&h);
    }
    closedir(dir);
}

/* Takes ownership of H. Keeps the first error, to report it if the folder has no readable
 * history. */
static void keep_heap(void *user, struct folder_heap *h, int error, const struct err *why)
{
    struct folder_heaps *all = user;
    if (error < 0 && all->error == 0)
        all->error = err_set(&all->why, error, "%s", why->text);
    struct folder_heap *more =
        h && h->profile ? reallocarray(all->at, all->count + 1, sizeof *more) : NULL;
    if (!more)
        return;
    all->at = more;
    more[all->count++] = *h;
    *h = (struct folder_heap){0};
}

void folder_heaps_read(const char *path, struct folder_heaps *ret)
{
    *ret = (struct folder_heaps){.is_read = true};
    folder_each(path, keep_heap, ret);
}

void folder_heaps_fini(struct folder_heaps *h)
{
    for (size_t i = 0; i < h->count; i++)
        folder_heap_fini(&h->at[i]);
    free(h->at);
    *h = (struct folder_heaps){0};
}

static int no_gpu_error(struct err *err)
{
    return err_set(err, -ENOENT,
                   "no GPU memory was recorded; ebb records blocks of PyTorch's caching allocator "
                   "(torch 1.10 or later, without backend:cudaMallocAsync), unless --no-heap or "
                   "EBB_HEAP=0 is set");
}

static int pick_error(const struct folder_heaps *h, int32_t pid, enum folder_memory memory,
                      struct err *err)
{
    if (h->count == 0 && h->error < 0)
        return err_set(err, h->error, "%s", h->why.text);
    if (h->count && memory == FOLDER_GPU)
        return no_gpu_error(err);
    return h->count ? err_set(err, -ENOENT, "no heap history of process %d", (int)pid)
                    : err_set(err, -ENOENT,
                              "no heap history found; ebb run records one for every dynamically "
                              "linked program that runs for at least two seconds, unless "
                              "--no-heap or EBB_HEAP=0 is set");
}

int folder_heaps_pick(const struct folder_heaps *h, int32_t pid, enum folder_memory memory,
                      struct folder_heap *ret, struct err *err)
{
    const struct folder_heap *best = NULL;
    for (size_t i = 0; i < h->count; i++) {
        const struct profile *p = profile_part(&h->at[i], memory);
        if (p && (pid == 0 || p->pid == pid) && (!best || is_better(p, profile_part(best, memory))))
            best = &h->at[i];
    }
    if (!best)
        return pick_error(h, pid, memory, err);
    *ret = *best;
    ret->profile = profile_ref(profile_part(best, memory));
    ret->other = calloc(h->count, sizeof *ret->other);
    ret->others = 0;
    for (size_t i = 0; ret->other && i < h->count; i++) {
        const struct profile *p = profile_part(&h->at[i], memory);
        if (p && &h->at[i] != best)
            ret->other[ret->others++] = (struct folder_other){p->pid, folder_live_bytes(p)};
    }
    if (ret->others > 1)
        qsort(ret->other, ret->others, sizeof *ret->other, by_live);
    return 0;
}

int folder_heap_read(const char *path, int32_t pid, enum folder_memory memory,
                     struct folder_heap *ret, struct err *err)
{
    struct folder_heaps all;
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISDIR(st.st_mode)) {
        int r = read_file(AT_FDCWD, path, ret, err);
        if (r == 0 && pid != 0 && ret->profile->pid != pid) {
            folder_heap_fini(ret);
            r = err_set(err, -ENOENT, "%s is not the heap history of process %d", path, (int)pid);
        }
        if (r == 0 && !profile_part(ret, memory)) {
            folder_heap_fini(ret);
            r = err_prefix(err, no_gpu_error(err), "%s", path);
        }
        if (r == 0)
            ret->profile = profile_part(ret, memory);
        return r;
    }
    folder_heaps_read(path, &all);
    int r = folder_heaps_pick(&all, pid, memory, ret, err);
    folder_heaps_fini(&all);
    return r < 0 ? err_prefix(err, r, "%s", path) : 0;
}
