/* Creates a run folder, updates the "latest" link, and writes run.json. */
#include "trace/rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/json.h"

enum { TRIES_MAX = 1000, RUNDIR_ID_MAX = 64 };

static const char runs_folder[] = "ebb-runs", json_name[] = "run.json";

static int fail(struct err *err, int r, const char *path)
{
    switch (r) {
    case -EEXIST:
        return err_set(err, r, "run folder %s already exists; choose another or remove it", path);
    case -ENOTDIR:
        return err_set(err, r, "run folder %s cannot be created: part of its path is a file", path);
    default:
        return err_set(err, r, "run folder %s cannot be created: %s", path, strerror(-r));
    }
}

/* Makes PATH absolute. Components "." and ".." are kept, because resolving ".." after a symbolic
 * link would change the path. */
static int make_absolute(const char *path, char *ret, size_t size)
{
    AUTO_FREE char *cwd = path[0] == '/' ? NULL : getcwd(NULL, 0);
    if (path[0] != '/' && !cwd)
        return -errno;
    int n = snprintf(ret, size, "%s%s%s", cwd ? cwd : "", cwd ? "/" : "", path);
    if (n < 0 || (size_t)n >= size)
        return -ENAMETOOLONG;
    for (size_t len = strlen(ret); len > 1 && ret[len - 1] == '/'; len--)
        ret[len - 1] = '\0';
    return 0;
}

static int make_parents(const char *path)
{
    AUTO_FREE char *copy = strdup(path);
    if (!copy)
        return -ENOMEM;
    char *slash = strrchr(copy, '/');
    if (!slash || slash == copy)
        return 0;
    *slash = '\0';
    return io_mkdir_parents(copy);
}

static int make_folder(struct rundir *dir)
{
    if (mkdir(dir->path, 0777) < 0)
        return -errno;
    dir->fd = open(dir->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir->fd >= 0)
        return 0;
    int r = -errno;
    /* the folder was created but cannot be opened, for instance because of umask 777 */
    rmdir(dir->path);
    return r;
}

void rundir_clean_name(const char *name, char ret[RUNDIR_NAME_MAX + 1])
{
    static const char good[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = 0;
    for (; name && name[n] && n < RUNDIR_NAME_MAX; n++)
        ret[n] = strchr(good, name[n]) ? name[n] : '_';
    ret[n] = '\0';
    if (n == 0 || strcmp(ret, ".") == 0 || strcmp(ret, "..") == 0)
        memcpy(ret, "run", sizeof "run");
    /* other programs would take a file name with a leading dash for an option */
    if (ret[0] == '-')
        ret[0] = '_';
}

/* Points the link "latest" in folder RUNS to BASE. The new link is renamed over the old one, so
 * that "latest" always exists. If "latest" is not a link, it belongs to the user and is left
 * unchanged. */
static void point_latest(int runs, const char *base)
{
    struct stat st;
    char temporary[64];
    if (runs < 0)
        return;
    if (fstatat(runs, "latest", &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISLNK(st.st_mode))
        return;
    snprintf(temporary, sizeof temporary, ".latest.%ld", (long)getpid());
    /* an earlier run with the same pid may have been killed before it could rename its link */
    unlinkat(runs, temporary, 0);
    if (symlinkat(base, runs, temporary) < 0)
        return;
    if (renameat(runs, temporary, runs, "latest") < 0)
        unlinkat(runs, temporary, 0);
}

static int create_exactly(const char *path, struct rundir *dir)
{
    if (!*path)
        return -ENOENT;
    int r = make_absolute(path, dir->path, sizeof dir->path);
    if (r == 0)
        r = make_parents(dir->path);
    return r < 0 ? r : make_folder(dir);
}

static int create_dated(const char *name, uint64_t wall_ns, struct rundir *dir)
{
    char clean[RUNDIR_NAME_MAX + 1], date[32], path[256];
    time_t seconds = (time_t)(wall_ns / NS_PER_S);
    struct tm tm;
    if (!localtime_r(&seconds, &tm) || strftime(date, sizeof date, "%Y%m%d-%H%M%S", &tm) == 0)
        return -EINVAL;
    rundir_clean_name(name, clean);
    for (int i = 1; i <= TRIES_MAX; i++) {
        int n = snprintf(path, sizeof path, "%s/%s-%s", runs_folder, clean, date);
        if (i > 1)
            snprintf(path + n, sizeof path - (size_t)n, "-%d", i);
        int r = create_exactly(path, dir);
        if (r != -EEXIST)
            return r;
    }
    return -EEXIST;
}

int rundir_create(const char *path, const char *name, uint64_t wall_ns, struct rundir *ret,
                  struct err *err)
{
    struct rundir *dir = calloc(1, sizeof *dir);
    if (!dir)
        return fail(err, -ENOMEM, path ? path : runs_folder);
    dir->fd = -1;
    int r = path ? create_exactly(path, dir) : create_dated(name, wall_ns, dir);
    if (r < 0) {
        r = fail(err, r, dir->path[0] ? dir->path : path ? path : runs_folder);
        free(dir);
        return r;
    }
    if (!path) {
        AUTO_CLOSE int runs = openat(dir->fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        point_latest(runs, strrchr(dir->path, '/') + 1);
    }
    *ret = *dir;
    free(dir);
    return 0;
}

void rundir_point_latest(const struct rundir *node, const char *job)
{
    AUTO_CLOSE int runs = openat(node->fd, "../..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    point_latest(runs, job);
}

/* ---- the owner's signature ---- */

/* The id is stored as the target of a symbolic link. Unlike a file, a link is created atomically
 * and reaches the disk together with its folder, so a job can start without waiting for a sync. */
static const char id_name[] = ".folder-id";

int rundir_sign(struct rundir *dir, const char *folder_id, struct err *err)
{
    int r = strlen(folder_id) > RUNDIR_ID_MAX ? -EINVAL : 0;
    if (r == 0 && symlinkat(folder_id, dir->fd, id_name) < 0)
        r = -errno;
    if (r == 0)
        return 0;
    rmdir(dir->path);
    r = fail(err, r, dir->path);
    rundir_fini(dir);
    return r;
}

/* Returns 1 if the folder's signature is FOLDER_ID, or if FOLDER_ID is "" and there is no
 * signature. Otherwise returns 0, or -errno if the signature cannot be read. */
static int is_signed_with(int dir, const char *folder_id)
{
    char target[RUNDIR_ID_MAX + 1];
    ssize_t len = readlinkat(dir, id_name, target, sizeof target);
    if (len < 0 && errno == ENOENT)
        return folder_id[0] == '\0';
    if (len < 0)
        return errno == EINVAL ? 0 : -errno; /* EINVAL: the file is not a link */
    return (size_t)len == strlen(folder_id) && memcmp(target, folder_id, (size_t)len) == 0;
}

int rundir_open_signed(int dirfd, const char *path, const char *folder_id)
{
    int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOTDIR || errno == ELOOP ? -ENOENT : -errno;
    int r = is_signed_with(fd, folder_id);
    if (r > 0)
        return fd;
    close(fd);
    return r < 0 ? r : -ENOENT;
}

void rundir_fini(struct rundir *dir)
{
    if (dir->fd >= 0 && dir->path[0]) /* in a zeroed struct, fd is 0 but no folder is open */
        close(dir->fd);
    dir->fd = -1;
    dir->path[0] = '\0';
}

/* Moves a folder called run.json out of the way. The job can create such a folder, and a file
 * cannot be renamed over it. */
static void move_folder_aside(int dir)
{
    char random[17], name[64];
    struct stat st;
    if (fstatat(dir, json_name, &st, AT_SYMLINK_NOFOLLOW) < 0 || !S_ISDIR(st.st_mode) ||
        io_random_hex(8, random) < 0)
        return;
    snprintf(name, sizeof name, "%s.%s", json_name, random);
    renameat(dir, json_name, dir, name);
}

int rundir_write_json(const struct rundir *dir, const json_t *doc)
{
    struct buf text = {0};
    int r = json_print(&text, doc, 2);
    if (r == 0)
        r = io_replace_file(dir->fd, json_name, text.data, text.len);
    if (r == -EISDIR) {
        move_folder_aside(dir->fd);
        r = io_replace_file(dir->fd, json_name, text.data, text.len);
    }
    buf_fini(&text);
    return r;
}
