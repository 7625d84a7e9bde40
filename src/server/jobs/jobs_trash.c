/* Removing folders a little at a time: what is to go is moved into one folder first, and folders
 * within it up to the same level, so that no depth of nesting matters. Links are never followed. */
#include "server/jobs/jobs_trash.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"

static const char trash_name[] = ".trash";
static const char stuck_prefix[] = "stuck-";

int trash_open(int runs_fd, struct trash *ret)
{
    if (mkdirat(runs_fd, trash_name, 0700) < 0 && errno != EEXIST)
        return -errno;
    int fd = openat(runs_fd, trash_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    *ret = (struct trash){.fd = fd, .is_full = true, .with_stuck = true};
    return 0;
}

void trash_close(struct trash *t)
{
    if (t->fd >= 0)
        close(t->fd);
    t->fd = -1;
}

void trash_open_up(int dir, const char *name)
{
    char path[40];
    struct stat st;
    int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        (void)!chmod(path, 0700);
    close(fd);
}

static int move_in(struct trash *t, int dir, const char *name)
{
    char to[64];
    for (int attempt = 0; attempt < 2; attempt++) {
        snprintf(to, sizeof to, "%llx.%u", (unsigned long long)clock_mono_ns(), t->moved++);
        if (renameat(dir, name, t->fd, to) == 0)
            return 0;
        if (errno != EACCES && errno != EPERM)
            break;
        trash_open_up(dir, name);
    }
    return -errno;
}

/* Somebody may have removed it: what is moved into a folder that is gone would not be moved. */
static int make_sure(struct trash *t, int runs_fd)
{
    struct stat st;
    struct trash fresh = {.fd = -1};
    if (fstat(t->fd, &st) == 0 && st.st_nlink > 0)
        return 0;
    int r = trash_open(runs_fd, &fresh);
    if (r < 0)
        return r;
    close(t->fd);
    t->fd = fresh.fd;
    return 0;
}

int trash_put(struct trash *t, int runs_fd, const char *name)
{
    int r = make_sure(t, runs_fd);
    if (r == 0)
        r = move_in(t, runs_fd, name);
    if (r == 0)
        t->is_full = true;
    return r;
}

static bool is_dots(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

static DIR *trash_open_dir(int dir, const char *name)
{
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 && errno == EACCES) {
        trash_open_up(dir, name);
        fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        cleanup_close(&fd);
    return d;
}

static void count_bytes(struct trash *t, int dir, const char *name)
{
    struct stat st;
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && st.st_nlink == 1)
        t->freed_bytes += (uint64_t)st.st_blocks * 512;
}

/* One entry of a folder in the trash: 0 it is gone from there. */
static int drop_entry(struct trash *t, int dir, const char *name)
{
    count_bytes(t, dir, name);
    if (unlinkat(dir, name, 0) == 0) {
        t->removed++;
        return 0;
    }
    /* EPERM is what POSIX has for a folder */
    return errno == EISDIR || errno == EPERM ? move_in(t, dir, name) : -errno;
}

static int drop_folder(struct trash *t, const char *name, unsigned *budget)
{
    DIR *dir = trash_open_dir(t->fd, name);
    int r = 0;
    if (!dir)
        return -errno;
    for (const struct dirent *e; *budget > 0 && (e = readdir(dir));) {
        if (is_dots(e->d_name))
            continue;
        --*budget;
        int one = drop_entry(t, dirfd(dir), e->d_name);
        r = one < 0 ? one : r;
    }
    closedir(dir);
    if (*budget == 0)
        return r;
    if (unlinkat(t->fd, name, AT_REMOVEDIR) == 0)
        t->removed++;
    else if (r == 0)
        r = -errno;
    return r;
}

static bool is_stuck(const char *name)
{
    return strncmp(name, stuck_prefix, sizeof stuck_prefix - 1) == 0;
}

/* What cannot be removed (a mount, another user's) must not keep the rest from going. */
static void put_aside(struct trash *t, const char *name)
{
    char to[NAME_MAX + 1];
    if (!is_stuck(name) && snprintf(to, sizeof to, "%s%s", stuck_prefix, name) < (int)sizeof to &&
        renameat(t->fd, name, t->fd, to) == 0)
        t->has_stuck = true;
}

void trash_try_stuck(struct trash *t)
{
    t->is_full = t->with_stuck = true;
    t->has_stuck = false;
}

int trash_empty_some(struct trash *t, unsigned budget)
{
    DIR *dir = trash_open_dir(t->fd, ".");
    int trouble = 0;
    unsigned before = budget;
    const struct dirent *e;
    if (!dir)
        return -errno;
    while (budget > 0 && (e = readdir(dir))) {
        if (is_dots(e->d_name) || (is_stuck(e->d_name) && !t->with_stuck))
            continue;
        budget--;
        count_bytes(t, t->fd, e->d_name);
        if (unlinkat(t->fd, e->d_name, 0) == 0) {
            t->removed++;
            continue;
        }
        int r = drop_folder(t, e->d_name, &budget);
        t->has_stuck = t->has_stuck || (r < 0 && is_stuck(e->d_name));
        if (r < 0)
            put_aside(t, e->d_name);
        trouble = r < 0 ? r : trouble;
    }
    closedir(dir);
    t->with_stuck = false; /* once: there may be more of them than the budget allows */
    if (budget == before)
        t->is_full = false;
    return trouble;
}
