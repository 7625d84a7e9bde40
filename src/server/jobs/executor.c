/* Functions shared by all executors: cancelling, locks and run.json. */
#include "server/jobs/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/text.h"
#include "run/outcome.h"
#include "server/jobs/command.h"
#include "server/jobs/runs_folder.h"
#include "trace/rundir.h"

/* ---- cancelling ---- */

int executor_cancel(struct executor_run *run, const char *reason, uint64_t grace_ns)
{
    struct executor_cancel *c = &run->cancel;
    if (!c->is_wanted)
        text_copy(c->reason, sizeof c->reason, reason);
    else if (grace_ns >= c->grace_ns)
        return 0;
    c->is_wanted = true;
    c->is_sent = false;
    c->grace_ns = grace_ns;
    c->asked_ns = clock_mono_ns();
    return run->x->kind->cancel(run);
}

void executor_cancel_again(struct executor_run *run)
{
    run->cancel.is_sent = false;
    if (run->x->kind->cancel_again)
        run->x->kind->cancel_again(run);
}

struct job_request executor_cancel_request(const struct executor_cancel *c)
{
    struct job_request request = {.action = "cancel",
                                  .has_reason = true,
                                  .has_grace_s = true,
                                  .grace_s = (double)c->grace_ns / 1e9};
    text_copy(request.reason, sizeof request.reason, c->reason);
    return request;
}

bool executor_cancel_is_late(const struct executor_cancel *c, uint64_t now_ns, uint64_t force_ns)
{
    const uint64_t waited_ns = now_ns > c->asked_ns ? now_ns - c->asked_ns : 0;
    return waited_ns > c->grace_ns && waited_ns - c->grace_ns >= force_ns;
}

int executor_run_path(const struct executor_run *run, char ret[PATH_MAX])
{
    int n = snprintf(ret, PATH_MAX, "%s/%s", run->x->runs_path, run->folder.name);
    return n < PATH_MAX ? 0 : -ENAMETOOLONG;
}

/* ---- locks ---- */

static int open_lock(const struct executor *x, int64_t id, int flags)
{
    char name[24];
    struct stat st;
    snprintf(name, sizeof name, "%" PRId64, id);
    int fd = openat(x->locks_fd, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0600);
    if (fd < 0)
        return -errno;
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return -EBADMSG;
    }
    return fd;
}

int executor_lock_open(const struct executor *x, int64_t id)
{
    return open_lock(x, id, 0);
}

int executor_lock_take(const struct executor *x, int64_t id)
{
    int fd = command_fd_move_up(open_lock(x, id, O_CREAT));
    if (fd < 0)
        return fd;
    int r = flock(fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
    if (r == 0 && ftruncate(fd, 0) < 0) /* removes the pid of the previous holder */
        r = -errno;
    if (r < 0) {
        close(fd);
        return r == -EWOULDBLOCK ? -EBUSY : r;
    }
    return fd;
}

int executor_lock_is_held(int lock_fd)
{
    if (flock(lock_fd, LOCK_EX | LOCK_NB) < 0)
        return errno == EWOULDBLOCK ? 1 : -errno;
    flock(lock_fd, LOCK_UN);
    return 0;
}

int executor_is_held(const struct executor *x, int64_t id)
{
    AUTO_CLOSE int lock = executor_lock_open(x, id);
    return lock >= 0 ? executor_lock_is_held(lock) : lock == -ENOENT ? 0 : lock;
}

void executor_forget(struct executor *x, int64_t id)
{
    char name[24];
    snprintf(name, sizeof name, "%" PRId64, id);
    unlinkat(x->locks_fd, name, 0);
}

/* ---- run.json ---- */

int executor_open_folder(struct runs_folder *runs, const struct job_folder *folder)
{
    if (!folder->name[0] || folder->name[0] == '.' || strchr(folder->name, '/'))
        return -ENOENT;
    int fd = runs_folder_fd(runs);
    return fd < 0 ? fd : rundir_open_signed(fd, folder->name, folder->id);
}

bool executor_is_disk_full(struct runs_folder *runs)
{
    struct statvfs fs;
    return fstatvfs(runs_folder_fd(runs), &fs) == 0 &&
           (fs.f_bavail == 0 || (fs.f_files > 0 && fs.f_favail == 0));
}

int executor_read_run(const struct executor *x, const struct job_folder *folder, size_t max,
                      json_t **ret_json, struct outcome *ret)
{
    AUTO_CLOSE int dir = executor_open_folder(x->runs, folder);
    return dir < 0 ? dir : outcome_read_folder(dir, max, ret_json, ret);
}

bool executor_is_ended(const struct outcome *o)
{
    return o->has_end && o->about.state && strcmp(o->about.state, "ended") == 0;
}
