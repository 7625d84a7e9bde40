/* Ensures that ids are never reused, even after jobs.db was moved away or replaced by an older
 * copy. STATE/last-id contains the largest id so far. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "base/number.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/runs_folder.h"

static const char mark_name[] = "last-id";
/* maximum plausible id; if last-id contains a larger number, the file is damaged */
static const int64_t id_max = INT64_C(1) << 52;

/* ---- reconstructing last-id from the ids of run folders and locks ---- */

static void raise_to(int64_t *max, const char *digits, size_t len)
{
    int64_t id;
    if (len > 0 && number_parse_i64(digits, len, &id) == 0 && id > *max && id < id_max)
        *max = id;
}

/* True if the folder NAME contains run.json. A folder without run.json is a user's folder with a
 * similar name. */
static bool is_run_folder(int runs_fd, const char *name)
{
    char path[NAME_MAX + 16];
    struct stat st;
    snprintf(path, sizeof path, "%s/run.json", name);
    return fstatat(runs_fd, path, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static int64_t largest_of(int folder, bool is_runs)
{
    int64_t max = 0;
    DIR *dir = io_open_folder(folder, ".");
    if (!dir)
        return 0;
    for (const struct dirent *e; (e = readdir(dir));) {
        size_t digits = strspn(e->d_name, "0123456789");
        if (e->d_name[digits] == (is_runs ? '-' : '\0') &&
            (!is_runs || is_run_folder(folder, e->d_name)))
            raise_to(&max, e->d_name, digits);
    }
    closedir(dir);
    return max;
}

static int64_t largest_seen(const struct jobs *j)
{
    int64_t run = largest_of(runs_folder_fd(j->runs), true), lock = largest_of(j->locks_fd, false);
    return run > lock ? run : lock;
}

/* ---- the file ---- */

int jobs_ids_open(struct jobs *j, int state_fd, struct err *err)
{
    char text[32];
    int64_t id = 0;
    j->ids_fd = openat(state_fd, mark_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (j->ids_fd < 0)
        return err_set(err, -errno, "cannot open %s/%s: %s", j->options.state_dir, mark_name,
                       strerror(errno));
    ssize_t len = io_pread_small(j->ids_fd, text, sizeof text);
    if (len > 0)
        raise_to(&id, text, strspn(text, "0123456789"));
    if (!id && !runs_folder_is_open(j->runs))
        return err_set(
            err, -ETIMEDOUT,
            "%s/%s is missing, so the server must read the folder %s, which is unreachable; "
            "start the server again once the folder is reachable",
            j->options.state_dir, mark_name, j->runs_path);
    store_ids_above(j->store, id ? id : largest_seen(j));
    return jobs_ids_note(j, store_next_id(j->store) - 1, err);
}

/* Writes last-id. The file is not synced. Its content is needed only if the store is lost. */
int jobs_ids_note(struct jobs *j, int64_t id, struct err *err)
{
    char text[32];
    int len = snprintf(text, sizeof text, "%020" PRId64 "\n", id);
    ssize_t n = pwrite(j->ids_fd, text, (size_t)len, 0);
    if (n == len)
        return 0;
    return err_set(err, n < 0 ? -errno : -ENOSPC, "cannot write %s/%s: %s", j->options.state_dir,
                   mark_name, strerror(n < 0 ? errno : ENOSPC));
}
