/* Removes and measures run folders. Folders inside a removed folder are moved up into the trash, so
 * that the depth of nesting does not matter. Links are never followed. */
#include "server/jobs/cleaner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "trace/rundir.h"

enum { DEPTH_MAX = 16 }; /* maximum depth of folders that are measured */

static const char trash_name[] = ".trash";

int cleaner_open(struct cleaner *c, int runs_fd)
{
    if (mkdirat(runs_fd, trash_name, 0700) < 0 && errno != EEXIST)
        return -errno;
    int fd = openat(runs_fd, trash_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    close_fd(&c->trash_fd);
    c->runs_fd = runs_fd;
    c->trash_fd = fd;
    return 0;
}

void cleaner_open_up(int dir, const char *name)
{
    char path[40];
    struct stat st;
    AUTO_CLOSE int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        (void)!chmod(path, 0700);
}

static int move_to_trash(struct cleaner *c, int dir, const char *name)
{
    char to[64];
    for (int attempt = 0; attempt < 2; attempt++) {
        snprintf(to, sizeof to, "%llx.%u", (unsigned long long)clock_mono_ns(), c->moved++);
        if (renameat(dir, name, c->trash_fd, to) == 0)
            return 0;
        if (errno != EACCES && errno != EPERM)
            break;
        cleaner_open_up(dir, name);
    }
    return -errno;
}

int cleaner_put(struct cleaner *c, const char *name)
{
    struct stat st;
    /* if a user has removed the trash folder, folders that are moved into it would be lost */
    int r = fstat(c->trash_fd, &st) == 0 && st.st_nlink > 0 ? 0 : cleaner_open(c, c->runs_fd);
    return r < 0 ? r : move_to_trash(c, c->runs_fd, name);
}

static DIR *open_dir(int dir, const char *name)
{
    const int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = openat(dir, name, flags);
    if (fd < 0 && errno == EACCES) {
        cleaner_open_up(dir, name);
        fd = openat(dir, name, flags);
    }
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        close_fd(&fd);
    return d;
}

static const char *next_name(struct cleaner *c, DIR *dir)
{
    const struct dirent *e = NULL;
    while (!atomic_load(&c->is_stopped) && (e = readdir(dir)) &&
           (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0))
        ;
    return e && !atomic_load(&c->is_stopped) ? e->d_name : NULL;
}

/* Empties the folder NAME in the trash. Returns how many of its entries were removed or moved
 * up. */
static unsigned empty_folder(struct cleaner *c, const char *name)
{
    const char *entry;
    unsigned count = 0;
    DIR *dir = open_dir(c->trash_fd, name);
    while (dir && (entry = next_name(c, dir)))
        count += unlinkat(dirfd(dir), entry, 0) == 0 || move_to_trash(c, dirfd(dir), entry) == 0;
    if (dir)
        closedir(dir);
    return count + (unlinkat(c->trash_fd, name, AT_REMOVEDIR) == 0);
}

/* Repeats passes over the trash until nothing more can be removed. */
static void empty_trash(struct cleaner *c)
{
    unsigned removed;
    do {
        const char *name;
        DIR *dir = open_dir(c->trash_fd, ".");
        removed = 0;
        c->has_left = !dir;
        while (dir && (name = next_name(c, dir))) {
            c->has_left = true;
            removed += unlinkat(c->trash_fd, name, 0) == 0 || empty_folder(c, name) > 0;
        }
        if (dir)
            closedir(dir);
    } while (removed > 0);
}

static uint64_t folder_bytes(struct cleaner *c, int dir, const char *name, int depth)
{
    struct stat st;
    const char *entry;
    int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    uint64_t bytes = d && fstat(fd, &st) == 0 ? (uint64_t)st.st_blocks * 512 : 0;
    while (d && (entry = next_name(c, d))) {
        if (fstatat(fd, entry, &st, AT_SYMLINK_NOFOLLOW) < 0)
            continue;
        if (!S_ISDIR(st.st_mode))
            bytes += (uint64_t)st.st_blocks * 512;
        else if (depth < DEPTH_MAX)
            bytes += folder_bytes(c, fd, entry, depth + 1);
    }
    if (d)
        closedir(d);
    else
        close_fd(&fd);
    return bytes;
}

static void *clean(void *user)
{
    struct cleaner *c = user;
    empty_trash(c);
    for (size_t i = 0; i < c->folder_count; i++) {
        struct cleaner_folder *f = &c->folders[i];
        AUTO_CLOSE int fd = rundir_open_signed(c->runs_fd, f->name, f->folder_id);
        f->bytes = fd < 0 ? 0 : folder_bytes(c, fd, ".", 0);
    }
    atomic_store(&c->is_done, true);
    return NULL;
}

int cleaner_start(struct cleaner *c)
{
    sigset_t all, before;
    sigfillset(&all);
    atomic_store(&c->is_done, false);
    /* the thread must not receive signals, which the event loop handles */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = -pthread_create(&c->thread, NULL, clean, c);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    c->is_running = r == 0;
    return r;
}

bool cleaner_is_busy(struct cleaner *c)
{
    if (c->is_running && atomic_load(&c->is_done)) {
        pthread_join(c->thread, NULL);
        c->is_running = false;
    }
    return c->is_running;
}

void cleaner_close(struct cleaner *c)
{
    atomic_store(&c->is_stopped, true);
    if (c->is_running)
        pthread_join(c->thread, NULL);
    c->is_running = false;
    free(c->folders);
    c->folders = NULL;
    close_fd(&c->trash_fd);
}
