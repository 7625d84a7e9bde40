/* Follows a job by the holder of its lock and, once the lock is free, by its run.json. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "base/loop.h"
#include "base/number.h"
#include "guard/sweep.h"
#include "proc/procfs.h"
#include "server/jobs/executor_private.h"
#include "trace/rundir.h"

enum {
    EARLY_MS = 50, /* time between checks while the sentinel is not known yet */
    /* time between checks while the sentinel has exited but the lock is still held */
    LATE_MS = 500,
};

/* ---- the lock ---- */

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
    int fd = open_lock(x, id, O_CREAT);
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

int executor_lock_read(int lock_fd, struct executor_holder *ret)
{
    char text[64];
    int64_t pid, ticks;
    ssize_t len = io_pread_small(lock_fd, text, sizeof text);
    if (len < 0)
        return (int)len;
    const char *end = memchr(text, '\n', (size_t)len);
    const char *space = end ? memchr(text, ' ', (size_t)(end - text)) : NULL;
    if (!end)
        return -ENOENT;
    if (!space || number_parse_i64(text, (size_t)(space - text), &pid) < 0 ||
        number_parse_i64(space + 1, (size_t)(end - space - 1), &ticks) < 0 || pid <= 1 ||
        pid > INT32_MAX || ticks < 0)
        return -EBADMSG;
    *ret = (struct executor_holder){.pid = (pid_t)pid, .start_ticks = (uint64_t)ticks};
    return 0;
}

/* Opens a pidfd of the process HOLDER. Returns -ESRCH if its pid was reused, or -errno. The start
 * time is compared after the pidfd is opened. Otherwise the process could exit in between, and the
 * pidfd would refer to a later process with the same pid. */
static int executor_holder_open(const struct executor_holder *holder)
{
    char path[40], text[1024];
    struct proc_stat stat;
    int fd = io_pidfd_open(holder->pid);
    if (fd < 0)
        return fd;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)holder->pid);
    ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof text);
    if (len > 0 && proc_stat_parse(text, (size_t)len, &stat) == 0 &&
        stat.start_ticks == holder->start_ticks)
        return fd;
    close(fd);
    return -ESRCH;
}

/* ---- supervisors that do not react to a cancel ---- */

enum {
    WAKE_S = 2, /* time between two signals SIGCONT */
};

/* True if a process is the supervisor. A process of the job can imitate the supervisor's name, but
 * cannot be a child of a living sentinel. */
static bool is_child_of_sentinel(const struct executor_run *run, const struct proc_stat *stat)
{
    struct executor_holder holder;
    if (executor_lock_read(run->lock_fd, &holder) < 0)
        return false;
    AUTO_CLOSE int fd = executor_holder_open(&holder);
    return fd < 0 || stat->ppid == (int32_t)holder.pid;
}

void executor_note_supervisor(struct executor_run *run, pid_t pid)
{
    char path[40], text[1024];
    struct proc_stat stat;
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof text);
    if (len <= 0 || proc_stat_parse(text, (size_t)len, &stat) < 0 ||
        strcmp(stat.comm, "ebb-supervisor") != 0 || !is_child_of_sentinel(run, &stat))
        return;
    run->supervisor = (struct process_id){.pid = (int32_t)pid, .start_ticks = stat.start_ticks};
}

/* Finds the supervisor, a child of the sentinel, if the server was never connected to it. */
static void find_supervisor(struct executor_run *run, const struct executor_holder *holder)
{
    char path[64], text[256];
    int32_t pids[8];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)holder->pid, (int)holder->pid);
    ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof text);
    size_t count = len > 0 ? proc_pids_parse(text, (size_t)len, pids, 8) : 0;
    for (size_t i = 0; i < count && run->supervisor.pid == 0; i++)
        executor_note_supervisor(run, pids[i]);
}

/* Signals the supervisor, and wakes the sentinel, which ends the job once the supervisor is
 * dead. */
static void force(struct executor_run *run, const struct proc_root *root, bool is_over)
{
    struct executor_holder holder;
    if (executor_lock_read(run->lock_fd, &holder) == 0) {
        const struct process_id id = {.pid = (int32_t)holder.pid,
                                      .start_ticks = holder.start_ticks};
        if (guard_signal(root, &id, SIGCONT) == 0 && run->supervisor.pid == 0)
            find_supervisor(run, &holder);
    }
    if (run->supervisor.pid > 0)
        guard_signal(root, &run->supervisor, is_over ? SIGKILL : SIGCONT);
}

/* Called after a cancel. Sends SIGCONT to the supervisor and the sentinel, which may be stopped. If
 * the job outlives the grace period by force_ns, kills the supervisor; the sentinel then ends the
 * job. */
static void executor_force_check(struct executor_run *run, uint64_t now_ns)
{
    struct executor_cancel *c = &run->cancel;
    struct proc_root root;
    if (!c->wanted)
        return;
    if (now_ns >= c->wake_ns && proc_root_open("/proc", "/sys/fs/cgroup", &root, NULL) == 0) {
        const uint64_t waited_ns = now_ns > c->asked_ns ? now_ns - c->asked_ns : 0;
        bool is_over = waited_ns > c->grace_ns && waited_ns - c->grace_ns >= run->x->force_ns;
        force(run, &root, is_over);
        proc_root_close(&root);
    }
    if (now_ns >= c->wake_ns)
        c->wake_ns = now_ns + WAKE_S * NS_PER_S;
    executor_check_at(run, c->wake_ns);
}

/* ---- run.json ---- */

int executor_open_folder(const struct executor *x, const struct executor_folder *folder)
{
    if (!folder->name[0] || folder->name[0] == '.' || strchr(folder->name, '/'))
        return -ENOENT;
    return rundir_open_signed(x->runs_fd, folder->name, folder->id);
}

int executor_read_run(const struct executor *x, const struct executor_folder *folder, size_t max,
                      json_t **ret_json, struct outcome *ret)
{
    AUTO_CLOSE int dir = executor_open_folder(x, folder);
    return dir < 0 ? dir : outcome_read_folder(dir, max, ret_json, ret);
}

bool executor_is_ended(const struct outcome *o)
{
    return o->has_end && o->about.state && strcmp(o->about.state, "ended") == 0;
}

/* ---- the run ---- */

static void on_check_timer(void *user, uint64_t now_ns, uint64_t missed)
{
    struct executor_run *run = user;
    (void)now_ns;
    (void)missed;
    run->timer_ns = UINT64_MAX;
    executor_check(run);
}

struct executor_folder executor_folder_of(const struct executor_run *run)
{
    return (struct executor_folder){.name = run->run_dir, .id = run->folder_id};
}

struct executor_run *executor_run_new(struct executor *x, int64_t id,
                                      const struct executor_folder *folder)
{
    struct executor_run *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->x = x;
    run->id = id;
    run->child_fd = run->stderr_fd = run->lock_fd = run->holder_fd = -1;
    run->timer_ns = UINT64_MAX;
    channel_init(&run->channel, -1);
    if (strlen(folder->name) >= sizeof run->run_dir ||
        strlen(folder->id) >= sizeof run->folder_id ||
        loop_add_timer(x->loop, UINT64_MAX / 2, 0, on_check_timer, run, &run->timer) < 0) {
        free(run);
        return NULL;
    }
    memcpy(run->run_dir, folder->name, strlen(folder->name) + 1);
    memcpy(run->folder_id, folder->id, strlen(folder->id) + 1);
    return run;
}

void executor_run_free(struct executor_run *run)
{
    if (!run)
        return;
    executor_control_drop(run);
    loop_remove(run->child_source);
    loop_remove(run->holder_source);
    loop_remove(run->timer);
    close_fd(&run->child_fd);
    close_fd(&run->stderr_fd);
    close_fd(&run->lock_fd);
    close_fd(&run->holder_fd);
    free(run);
}

void executor_check_at(struct executor_run *run, uint64_t at_ns)
{
    if (at_ns >= run->timer_ns)
        return;
    run->timer_ns = at_ns;
    loop_set_timer(run->timer, at_ns, 0);
}

/* ---- the end ---- */

/* Sets the reason why the command was never executed. O is the end in run.json, or NULL if
 * unknown. */
static void set_no_start(struct executor_run *run, const struct outcome *o)
{
    const struct executor_folder folder = executor_folder_of(run);
    const bool has_run = o && o->end.kind != OUTCOME_UNKNOWN && o->end.kind != OUTCOME_NOT_STARTED;
    /* The lock was signed before the job was swept, so a swept job had been started. */
    const bool is_started = run->is_started || run->is_swept || has_run;
    if (is_started && o) /* `ebb run` also reports an error if its supervisor is killed */
        run->no_start[0] = '\0';
    if (run->no_start[0] || is_started)
        return;
    AUTO_CLOSE int dir = executor_open_folder(run->x, &folder);
    if (o && o->end.error)
        snprintf(run->no_start, sizeof run->no_start, "%.*s", EXECUTOR_SENTENCE_MAX - 1,
                 o->end.error);
    else if (o)
        snprintf(run->no_start, sizeof run->no_start, "the job could not be started");
    else if (dir == -ENOENT)
        snprintf(run->no_start, sizeof run->no_start,
                 "ebb run was killed by signal %d before it started the job", run->child_signal);
}

static void finish(struct executor_run *run)
{
    json_t *doc = NULL;
    struct outcome o = {0};
    const struct executor_callbacks callbacks = run->x->callbacks;
    const int64_t id = run->id;
    const struct executor_folder folder = executor_folder_of(run);
    char no_start[EXECUTOR_SENTENCE_MAX];
    if (executor_read_run(run->x, &folder, EXECUTOR_JSON_MAX, &doc, &o) == 0 &&
        !executor_is_ended(&o)) {
        outcome_fini(&o);
        json_decref(doc);
        doc = NULL;
    }
    if (!doc && executor_sweep(run))
        return;
    set_no_start(run, doc ? &o : NULL);
    outcome_fini(&o);
    memcpy(no_start, run->no_start, sizeof no_start);
    bool is_new = !run->is_start_reported && !no_start[0];
    if (run->holder > 0) /* if the server is pid 1 or a subreaper, it must reap the sentinel */
        waitpid(run->holder, NULL, WNOHANG);
    if (run->has_no_pidfd)
        waitpid(run->child, NULL, WNOHANG);
    executor_run_free(run);
    if (is_new)
        callbacks.started(callbacks.user, id);
    callbacks.over(callbacks.user, id, doc, no_start[0] ? no_start : NULL);
    json_decref(doc);
}

/* ---- checks ---- */

static void on_holder(void *user, int fd, uint32_t events)
{
    struct executor_run *run = user;
    (void)fd;
    (void)events;
    loop_remove(run->holder_source);
    run->holder_source = NULL;
    close_fd(&run->holder_fd);
    executor_check(run);
}

static void find_holder(struct executor_run *run)
{
    struct executor_holder holder;
    if (run->holder > 0 || executor_lock_read(run->lock_fd, &holder) < 0)
        return;
    int fd = executor_holder_open(&holder);
    if (fd < 0)
        return;
    if (loop_add_fd(run->x->loop, fd, EPOLLIN, on_holder, run, &run->holder_source) < 0) {
        close(fd);
        return;
    }
    run->holder_fd = fd;
    run->holder = holder.pid;
}

static void report_started(struct executor_run *run)
{
    if (!run->is_started || run->is_start_reported)
        return;
    run->is_start_reported = true;
    run->x->callbacks.started(run->x->callbacks.user, run->id);
}

void executor_check(struct executor_run *run)
{
    uint64_t now_ns = clock_mono_ns();
    if (run->child_fd >= 0) {
        executor_force_check(run, now_ns);
        return;
    }
    find_holder(run);
    if (run->holder_fd < 0) {
        if (executor_lock_is_held(run->lock_fd) == 0) {
            finish(run);
            return;
        }
        executor_check_at(run, now_ns + (run->holder > 0 ? LATE_MS : EARLY_MS) * NS_PER_MS);
    }
    if (run->has_no_pidfd) /* reaps the child here, because there is no pidfd to watch */
        waitpid(run->child, NULL, WNOHANG);
    executor_control_check(run, now_ns);
    executor_force_check(run, now_ns);
    report_started(run);
}
