/* Removes and measures run folders. Folders inside a removed folder are moved up into the trash, so
 * that the depth of nesting does not matter. Links are never followed. */
#include "server/jobs/cleaner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "server/jobs/executor.h"
#include "server/jobs/runs_folder.h"
#include "server/jobs/workers.h"

enum { DEPTH_MAX = 16 }; /* maximum depth of folders that are measured */

static const char trash_name[] = ".trash";

static int open_trash(struct cleaner *c)
{
    int runs_fd = runs_folder_fd(c->runs);
    if (runs_fd < 0)
        return runs_fd;
    if (mkdirat(runs_fd, trash_name, 0700) < 0 && errno != EEXIST)
        return -errno;
    int fd = openat(runs_fd, trash_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -errno;
    close_fd(&c->trash_fd);
    c->trash_fd = fd;
    return 0;
}

/* Makes a folder accessible that this user owns and whose mode denies access. */
static void cleaner_open_up(int dir, const char *name)
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

/* Moves c->put into the trash if it is a folder of the job. Returns 0 or -errno. */
static int put_folder(struct cleaner *c)
{
    const struct executor_folder folder = {.name = c->put.name, .id = c->put.folder_id};
    struct stat st;
    int fd = executor_open_folder(c->runs, &folder);
    if (fd == -EACCES) {
        cleaner_open_up(runs_folder_fd(c->runs), folder.name);
        fd = executor_open_folder(c->runs, &folder);
    }
    if (fd < 0)
        return fd == -ENOENT ? 0 : fd;
    bool is_run = folder.id[0] || fstatat(fd, "run.json", &st, AT_SYMLINK_NOFOLLOW) == 0;
    close(fd);
    if (!is_run)
        return 0;
    /* creates the trash folder again if a user has removed it */
    int r = fstat(c->trash_fd, &st) == 0 && st.st_nlink > 0 ? 0 : open_trash(c);
    if (r == 0)
        r = move_to_trash(c, runs_folder_fd(c->runs), folder.name);
    return r == -ENOENT ? 0 : r;
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

static void cleaner_run(void *user)
{
    struct cleaner *c = user;
    if (c->is_put) {
        c->put_result = put_folder(c);
        return;
    }
    if (c->trash_fd < 0)
        (void)open_trash(c);
    empty_trash(c);
    for (size_t i = 0; i < c->folder_count; i++) {
        struct cleaner_folder *f = &c->folders[i];
        const struct executor_folder folder = {.name = f->name, .id = f->folder_id};
        AUTO_CLOSE int fd = executor_open_folder(c->runs, &folder);
        f->bytes = fd < 0 ? 0 : folder_bytes(c, fd, ".", 0);
    }
}

/* ---- in the event loop ---- */

static void cleaner_done(void *user, int r)
{
    struct cleaner *c = user;
    (void)r; /* there is no time limit */
    c->task = NULL;
    c->done(c->user);
}

/* Called at the end of each task. Frees the cleaner after the last one. */
static void cleaner_free(void *user)
{
    struct cleaner *c = user;
    if (!c->is_closed)
        return;
    free(c->folders);
    close_fd(&c->trash_fd);
    free(c);
}

static const struct task_kind cleaner_kind = {cleaner_run, cleaner_done, cleaner_free};

int cleaner_put(struct cleaner *c, const char *name, const char *folder_id)
{
    c->is_put = true;
    text_copy(c->put.name, sizeof c->put.name, name);
    text_copy(c->put.folder_id, sizeof c->put.folder_id, folder_id);
    return workers_start(c->workers, &cleaner_kind, 0, 0, c, &c->task);
}

int cleaner_clean(struct cleaner *c)
{
    c->is_put = false;
    return workers_start(c->workers, &cleaner_kind, 0, 0, c, &c->task);
}

int cleaner_new(struct workers *workers, struct runs_folder *runs, void (*done)(void *user),
                void *user, struct cleaner **ret)
{
    struct cleaner *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    *c = (struct cleaner){
        .workers = workers, .done = done, .user = user, .runs = runs, .trash_fd = -1};
    int r = runs_folder_is_open(runs) ? open_trash(c) : 0;
    if (r < 0)
        free(c);
    else
        *ret = c;
    return r;
}

void cleaner_close(struct cleaner *c)
{
    if (!c)
        return;
    atomic_store(&c->is_stopped, true);
    c->is_closed = true;
    if (c->task)
        task_cancel(c->task);
    else
        cleaner_free(c);
}
