/* Hearing which files come and go in a folder of shared memory, by inotify. */
#include "guard/leavings.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "guard/leavings_private.h"

/* A file's times are of the last tick of the kernel's clock, so they may lie a little before. */
#define WALL_SLACK_NS (100 * NS_PER_MS)
#define FIRST_GAP_NS (20 * NS_PER_MS)

/* How often a file's being closed makes it looked for at once: those that write a file over and
 * over would have all processes asked each time. */
enum { CLOSES_MAX = 2, READS_MAX = 64 };

/* The lists. */

struct known *known_find(const struct known_list *list, uint64_t dev, uint64_t ino)
{
    for (size_t i = 0; i < list->count; i++)
        if (list->v[i].ino == ino && list->v[i].dev == dev)
            return &list->v[i];
    return NULL;
}

void known_drop(struct known_list *list, size_t i)
{
    free(list->v[i].name);
    list->v[i] = list->v[--list->count];
}

static int known_add(struct known_list *list, const struct known *file, const char *name)
{
    if (list->count == list->cap) {
        size_t cap = list->cap == 0 ? 32 : list->cap * 2;
        struct known *v = reallocarray(list->v, cap, sizeof(*v));
        if (v == NULL)
            return -ENOMEM;
        list->v = v;
        list->cap = cap;
    }
    char *copy = strdup(name);
    if (copy == NULL)
        return -ENOMEM;
    list->v[list->count] = *file;
    list->v[list->count++].name = copy;
    return 0;
}

static void known_rename(struct known *file, const char *name)
{
    if (strcmp(file->name, name) == 0)
        return;
    char *copy = strdup(name);
    if (copy == NULL)
        return; /* under its old name it will not be found at the end, and so be left alone */
    free(file->name);
    file->name = copy;
}

static void known_forget(struct known_list *list, const char *name)
{
    for (size_t i = list->count; i-- > 0;)
        if (strcmp(list->v[i].name, name) == 0)
            known_drop(list, i);
}

/* Another file has this name now. */
static void known_forget_others(struct known_list *list, const char *name, uint64_t dev,
                                uint64_t ino)
{
    for (size_t i = list->count; i-- > 0;)
        if ((list->v[i].ino != ino || list->v[i].dev != dev) && strcmp(list->v[i].name, name) == 0)
            known_drop(list, i);
}

static void known_fini(struct known_list *list)
{
    while (list->count > 0)
        known_drop(list, list->count - 1);
    free(list->v);
}

/* What comes and goes. */

/* A file may be older than the job although nobody saw it here: moved or linked in from a folder
 * below. Where the file system does not keep the time of birth, that of the last change of the
 * contents is after it. */
static bool is_older(const struct leavings *l, const struct statx *st)
{
    const struct statx_timestamp *born =
        st->stx_mask & STATX_BTIME ? &st->stx_btime : &st->stx_mtime;
    return born->tv_sec < 0 || (uint64_t)born->tv_sec * NS_PER_S + born->tv_nsec < l->began_wall_ns;
}

static void meet(struct leavings *l, const char *name, uint64_t now_ns)
{
    struct statx st;
    if (statx(l->folder_fd, name, AT_SYMLINK_NOFOLLOW, STATX_BASIC_STATS | STATX_BTIME, &st) < 0)
        return; /* gone again */
    const struct known file = {
        .dev = makedev(st.stx_dev_major, st.stx_dev_minor),
        .ino = st.stx_ino,
        .due_ns = now_ns,
        .gap_ns = FIRST_GAP_NS,
    };
    known_forget_others(&l->fresh, name, file.dev, file.ino);
    if (!S_ISREG(st.stx_mode))
        return;
    struct known *known = known_find(&l->fresh, file.dev, file.ino);
    if (known == NULL)
        known = known_find(&l->old, file.dev, file.ino);
    if (known != NULL)
        known_rename(known, name); /* moved, or linked: sem_open() does */
    else if (is_older(l, &st))
        known_add(&l->old, &file, name);
    else if (l->fresh.count >= LEAVINGS_FILES || known_add(&l->fresh, &file, name) < 0)
        l->must_rescan = true;
}

static void note_close(struct leavings *l, const char *name, uint64_t now_ns)
{
    for (size_t i = 0; i < l->fresh.count; i++) {
        struct known *file = &l->fresh.v[i];
        if (file->marks & KNOWN_JOBS || file->closes >= CLOSES_MAX || strcmp(file->name, name) != 0)
            continue;
        file->closes++;
        file->due_ns = now_ns;
    }
}

static void take_event(struct leavings *l, const struct inotify_event *event, uint64_t now_ns)
{
    if (event->mask & IN_Q_OVERFLOW)
        l->must_rescan = true;
    if (event->mask & IN_ISDIR || event->len == 0)
        return;
    if (event->mask & IN_DELETE) {
        known_forget(&l->fresh, event->name);
        known_forget(&l->old, event->name);
    } else if (event->mask & (IN_CREATE | IN_MOVED_TO)) {
        meet(l, event->name, now_ns);
    } else if (event->mask & IN_CLOSE_WRITE) {
        note_close(l, event->name, now_ns);
    }
}

void leavings_hear(struct leavings *l, uint64_t now_ns)
{
    char buf[16384] __attribute__((aligned(__alignof__(struct inotify_event))));
    for (int reads = 0; reads < READS_MAX; reads++) {
        ssize_t len = read(l->inotify_fd, buf, sizeof(buf));
        if (len <= 0)
            return;
        const struct inotify_event *event;
        for (ssize_t at = 0; at < len; at += (ssize_t)(sizeof(*event) + event->len)) {
            event = (const void *)(buf + at);
            take_event(l, event, now_ns);
        }
    }
}

static DIR *open_folder(const struct leavings *l)
{
    /* another open file, for the place in it is shared with every dup */
    int fd = openat(l->folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL && fd >= 0)
        close(fd);
    return dir;
}

static void forget_gone(struct leavings *l)
{
    for (size_t i = l->fresh.count; i-- > 0;) {
        const struct known *file = &l->fresh.v[i];
        struct stat st;
        if (fstatat(l->folder_fd, file->name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
            known_drop(&l->fresh, i);
    }
}

void leavings_rescan(struct leavings *l, uint64_t now_ns)
{
    l->must_rescan = false;
    DIR *dir = open_folder(l);
    if (dir == NULL)
        return;
    for (const struct dirent *e; (e = readdir(dir)) != NULL;)
        if (e->d_type == DT_REG || e->d_type == DT_UNKNOWN)
            meet(l, e->d_name, now_ns);
    closedir(dir);
    forget_gone(l); /* last: what was only moved has its new name by now */
}

void leavings_process(struct leavings *l, int32_t pid)
{
    l->pids[l->pid_at++ % LEAVINGS_PIDS] = pid;
}

/* Beginning and end. */

static int take_snapshot(struct leavings *l)
{
    DIR *dir = open_folder(l);
    if (dir == NULL)
        return -errno;
    int r = 0;
    for (const struct dirent *e; r == 0 && (e = readdir(dir)) != NULL;) {
        struct stat st;
        if (fstatat(l->folder_fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISREG(st.st_mode))
            continue;
        const struct known file = {.dev = st.st_dev, .ino = st.st_ino};
        r = known_add(&l->old, &file, e->d_name);
    }
    closedir(dir);
    return r;
}

/* The folder's real name, for /dev/shm may be a link (to /run/shm). */
static int name_folder(struct leavings *l)
{
    char link[32];
    struct stat st;
    snprintf(link, sizeof(link), "self/fd/%d", l->folder_fd);
    ssize_t len = readlinkat(l->proc_fd, link, l->folder, sizeof(l->folder) - 1);
    if (len < 0 || fstat(l->folder_fd, &st) < 0)
        return -errno;
    if ((size_t)len >= sizeof(l->folder) - 1)
        return -ENAMETOOLONG;
    l->folder[len] = '/';
    l->folder_len = (size_t)len + 1;
    l->folder_dev = st.st_dev;
    return 0;
}

static int begin(struct leavings *l, const char *folder)
{
    const uint32_t mask = IN_CREATE | IN_MOVED_TO | IN_DELETE | IN_CLOSE_WRITE | IN_ONLYDIR;
    l->proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    l->folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (l->proc_fd < 0 || l->folder_fd < 0)
        return -errno;
    int r = name_folder(l);
    if (r < 0)
        return r;
    l->inotify_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (l->inotify_fd < 0 || inotify_add_watch(l->inotify_fd, folder, mask) < 0)
        return -errno;
    l->began_wall_ns = clock_wall_ns() - WALL_SLACK_NS;
    return take_snapshot(l); /* after the watch, so that nothing falls between */
}

int leavings_new(const char *folder, struct leavings **ret, struct err *err)
{
    struct leavings *l = calloc(1, sizeof(*l));
    if (l == NULL)
        return err_set(err, -ENOMEM, "no memory to watch %s", folder);
    l->folder_fd = l->inotify_fd = l->proc_fd = l->maps.fd = -1;
    int r = begin(l, folder);
    if (r < 0) {
        leavings_free(l);
        return err_set(err, r, "%s cannot be watched for files left behind: %s", folder,
                       strerror(-r));
    }
    *ret = l;
    return 0;
}

void leavings_free(struct leavings *l)
{
    if (l == NULL || (l->maps.is_away && proc_helper_keeps(l->helper, l)))
        return;
    const int fds[] = {l->folder_fd, l->inotify_fd, l->proc_fd, l->maps.fd};
    for (size_t i = 0; i < sizeof(fds) / sizeof(fds[0]); i++)
        if (fds[i] >= 0)
            close(fds[i]);
    known_fini(&l->old);
    known_fini(&l->fresh);
    free(l->files);
    free(l);
}

int leavings_fd(const struct leavings *l)
{
    return l->inotify_fd;
}

bool leavings_folder_is_full(const struct leavings *l)
{
    struct statvfs st;
    if (fstatvfs(l->folder_fd, &st) < 0)
        return false;
    if (st.f_files > 0 && st.f_favail == 0)
        return true;
    /* a tmpfs without a limit says that it has no blocks at all */
    return st.f_blocks > 0 && (st.f_bavail < st.f_blocks / 100 ||
                               (uint64_t)st.f_bavail * st.f_frsize < UINT64_C(1) << 20);
}
