/* Reads the memory required by earlier runs of the same command. */
#include "run/earlier.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/array.h"
#include "base/cleanup.h"
#include "base/io.h"
#include "run/outcome.h"

enum { RUN_JSON_MAX = 4 << 20, FOLDERS_MAX = 500 };

struct earlier_folder {
    char name[256];
    int64_t mtime_s;
};

static int by_value(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t earlier_percentile(uint64_t *values, size_t n)
{
    if (!n)
        return 0;
    qsort(values, n, sizeof *values, by_value);
    return values[(98 * n + 99) / 100 - 1];
}

static int newest_first(const void *a, const void *b)
{
    const struct earlier_folder *x = a, *y = b;
    return (x->mtime_s < y->mtime_s) - (x->mtime_s > y->mtime_s);
}

static int read_run(int dirfd, const char *path, json_t **ret_json, struct outcome *ret)
{
    AUTO_CLOSE int folder =
        openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
    return folder < 0 ? -errno : outcome_read_folder(folder, RUN_JSON_MAX, ret_json, ret);
}

static bool is_same_command(const struct outcome_about *a, const struct outcome_about *b)
{
    if (!a->name || !b->name || strcmp(a->name, b->name) != 0 ||
        a->command_count != b->command_count)
        return false;
    for (size_t i = 0; i < a->command_count; i++)
        if (strcmp(a->command[i], b->command[i]) != 0)
            return false;
    return true;
}

/* Returns the memory request that would have been enough for the run in DIRFD/PATH, or 0 if the run
 * is not usable. */
static uint64_t request_of_run(int dirfd, const char *path, const struct outcome_about *job)
{
    json_t *doc = NULL;
    struct outcome o;
    if (read_run(dirfd, path, &doc, &o) < 0)
        return 0;
    const json_t *tree = json_object_get(json_object_get(doc, "verdict"), "tree");
    bool counts = is_same_command(&o.about, job) && o.has_end && o.end.kind == OUTCOME_EXITED &&
                  o.end.status == 0 && o.measured.has_ask_bytes &&
                  !json_is_true(json_object_get(tree, "leak"));
    uint64_t bytes = counts ? o.measured.ask_bytes : 0;
    outcome_fini(&o);
    json_decref(doc);
    return bytes;
}

/* Returns the memory request of the node that required most, or 0 if one of the nodes is not
 * usable. */
static uint64_t request_of_job(int dirfd, const char *path, const struct outcome_about *job)
{
    AUTO_CLOSE int folder = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    uint64_t most = 0;
    DIR *dir = folder < 0 ? NULL : io_open_folder(folder, ".");
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (strncmp(d->d_name, "node-", 5) != 0)
            continue;
        uint64_t bytes = request_of_run(folder, d->d_name, job);
        if (!bytes) {
            most = 0;
            break;
        }
        most = bytes > most ? bytes : most;
    }
    if (dir)
        closedir(dir);
    return most;
}

static struct earlier_folder *list_folders(int fd, size_t *ret_count)
{
    struct earlier_folder *list = NULL;
    size_t count = 0, cap = 0;
    struct stat st;
    DIR *dir = io_open_folder(fd, ".");
    for (struct dirent *d; dir && (d = readdir(dir));) {
        if (d->d_name[0] == '.' || fstatat(fd, d->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISDIR(st.st_mode))
            continue;
        if (!ARRAY_ROOM(list, count, cap))
            break;
        list[count] = (struct earlier_folder){.mtime_s = st.st_mtime};
        memcpy(list[count++].name, d->d_name, strlen(d->d_name) + 1);
    }
    if (dir)
        closedir(dir);
    if (count > 1)
        qsort(list, count, sizeof *list, newest_first);
    *ret_count = count < FOLDERS_MAX ? count : FOLDERS_MAX;
    return list;
}

/* Reads run.json of the run DIRFD/PATH or, for a job on several nodes, of the first node that has
 * one. */
static int read_own(int dirfd, const char *path, json_t **ret_json, struct outcome *ret)
{
    int r = read_run(dirfd, path, ret_json, ret);
    AUTO_CLOSE int folder =
        r < 0 ? openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
    DIR *dir = folder < 0 ? NULL : io_open_folder(folder, ".");
    for (struct dirent *d; r < 0 && dir && (d = readdir(dir));)
        if (strncmp(d->d_name, "node-", 5) == 0)
            r = read_run(folder, d->d_name, ret_json, ret);
    if (dir)
        closedir(dir);
    return r;
}

void earlier_read(const char *run, struct earlier *ret)
{
    AUTO_FREE char *path = realpath(run, NULL);
    char *slash = path ? strrchr(path, '/') : NULL;
    uint64_t values[EARLIER_RUNS];
    size_t count = 0, n = 0;
    json_t *doc = NULL;
    struct outcome own;
    *ret = (struct earlier){0};
    if (!slash || slash == path)
        return;
    *slash = '\0';
    AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || read_own(fd, slash + 1, &doc, &own) < 0)
        return;
    AUTO_FREE struct earlier_folder *list = list_folders(fd, &count);
    for (size_t i = 0; i < count && n < EARLIER_RUNS; i++) {
        uint64_t bytes = request_of_run(fd, list[i].name, &own.about);
        if (!bytes)
            bytes = request_of_job(fd, list[i].name, &own.about);
        if (bytes)
            values[n++] = bytes;
    }
    outcome_fini(&own);
    json_decref(doc);
    ret->runs = n;
    ret->bytes = earlier_percentile(values, n);
}
