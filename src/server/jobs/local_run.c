/* Follows a job by the holder of its lock and, once the lock is free, by its run.json. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/loop.h"
#include "base/number.h"
#include "guard/sweep.h"
#include "proc/procfs.h"
#include "server/jobs/local_private.h"
#include "trace/rundir.h"

enum {
    EARLY_MS = 50, /* time between checks while the sentinel is not known yet */
    /* time between checks while the sentinel has exited but the lock is still held */
    LATE_MS = 500,
};

/* ---- the lock ---- */

int local_lock_read(int lock_fd, struct local_holder *ret)
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
    *ret = (struct local_holder){.pid = (pid_t)pid, .start_ticks = (uint64_t)ticks};
    return 0;
}

/* Opens a pidfd of the process HOLDER. Returns -ESRCH if its pid was reused, or -errno. Compares
 * the start time after opening the pidfd, so that the pidfd is certain to refer to HOLDER. */
static int local_holder_open(const struct local_holder *holder)
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
    WAKE_S = 2, /* time between two SIGCONT signals */
};

/* True if a process is the supervisor: it has the right name and is a child of the sentinel. A
 * process of the job can imitate only the name. */
static bool is_child_of_sentinel(const struct local_run *run, const struct proc_stat *stat)
{
    struct local_holder holder;
    if (local_lock_read(run->lock_fd, &holder) < 0)
        return false;
    AUTO_CLOSE int fd = local_holder_open(&holder);
    return fd < 0 || stat->ppid == (int32_t)holder.pid;
}

void local_note_supervisor(struct local_run *run, pid_t pid)
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

/* Searches for the supervisor among the children of the sentinel, if the server was never connected
 * to it. */
static void find_supervisor(struct local_run *run, const struct local_holder *holder)
{
    char path[64], text[256];
    int32_t pids[8];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)holder->pid, (int)holder->pid);
    ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof text);
    size_t count = len > 0 ? proc_pids_parse(text, (size_t)len, pids, 8) : 0;
    for (size_t i = 0; i < count && run->supervisor.pid == 0; i++)
        local_note_supervisor(run, pids[i]);
}

/* Signals the supervisor, and continues the sentinel, which ends the job once the supervisor is
 * dead. */
static void force(struct local_run *run, const struct proc_root *root, bool is_over)
{
    struct local_holder holder;
    if (local_lock_read(run->lock_fd, &holder) == 0) {
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
static void local_force_check(struct local_run *run, uint64_t now_ns)
{
    struct executor_cancel *c = &run->base.cancel;
    struct proc_root root;
    if (!c->is_wanted)
        return;
    if (now_ns >= c->retry_ns && proc_root_open("/proc", "/sys/fs/cgroup", &root, NULL) == 0) {
        force(run, &root, executor_cancel_is_late(c, now_ns, run->base.x->force_ns));
        proc_root_close(&root);
    }
    if (now_ns >= c->retry_ns)
        c->retry_ns = now_ns + WAKE_S * NS_PER_S;
    local_check_at(run, c->retry_ns);
}

/* ---- the run ---- */

static void on_check_timer(void *user, uint64_t now_ns)
{
    struct local_run *run = user;
    (void)now_ns;
    run->timer_ns = UINT64_MAX;
    local_check(run);
}

struct local_run *local_run_new(struct executor *x, int64_t id,
                                const struct executor_folder *folder)
{
    struct local_run *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->child_fd = run->stderr_fd = run->lock_fd = run->holder_fd = -1;
    run->timer_ns = UINT64_MAX;
    channel_init(&run->channel, -1);
    if (executor_run_init(&run->base, x, id, folder) < 0 ||
        loop_add_timer(x->loop, UINT64_MAX / 2, 0, on_check_timer, run, &run->timer) < 0) {
        free(run);
        return NULL;
    }
    return run;
}

void local_run_free(struct local_run *run)
{
    if (!run)
        return;
    local_control_drop(run);
    loop_remove(run->child_source);
    loop_remove(run->holder_source);
    loop_remove(run->timer);
    close_fd(&run->child_fd);
    close_fd(&run->stderr_fd);
    close_fd(&run->lock_fd);
    close_fd(&run->holder_fd);
    free(run);
}

void local_check_at(struct local_run *run, uint64_t at_ns)
{
    if (at_ns >= run->timer_ns)
        return;
    run->timer_ns = at_ns;
    loop_set_timer(run->timer, at_ns, 0);
}

/* ---- the end ---- */

/* Sets the reason why the command was never executed. O is the end in run.json, or NULL if
 * unknown. */
static void set_no_start(struct local_run *run, const struct outcome *o)
{
    const struct executor_folder folder = executor_folder_of(&run->base);
    const bool has_run = o && o->end.kind != OUTCOME_UNKNOWN && o->end.kind != OUTCOME_NOT_STARTED;
    /* `ebb sweep` is used only if the lock is signed, which means that the job was started */
    const bool is_started = run->is_started || run->is_swept || has_run;
    if (is_started && o) /* `ebb run` also reports an error if its supervisor is killed */
        run->no_start[0] = '\0';
    if (run->no_start[0] || is_started)
        return;
    AUTO_CLOSE int dir = executor_open_folder(run->base.x->runs, &folder);
    if (o && o->end.error)
        snprintf(run->no_start, sizeof run->no_start, "%.*s", EXECUTOR_SENTENCE_MAX - 1,
                 o->end.error);
    else if (o)
        snprintf(run->no_start, sizeof run->no_start, "the job could not be started");
    else if (dir == -ENOENT)
        snprintf(run->no_start, sizeof run->no_start,
                 "ebb run was killed by signal %d before it started the job", run->child_signal);
}

static void finish(struct local_run *run)
{
    json_t *doc = NULL;
    struct outcome o = {0};
    const struct executor_callbacks callbacks = run->base.x->callbacks;
    const int64_t id = run->base.id;
    const struct executor_folder folder = executor_folder_of(&run->base);
    char no_start[EXECUTOR_SENTENCE_MAX];
    if (executor_read_run(run->base.x, &folder, EXECUTOR_JSON_MAX, &doc, &o) == 0 &&
        !executor_is_ended(&o)) {
        outcome_fini(&o);
        json_decref(doc);
        doc = NULL;
    }
    if (!doc && local_sweep(run))
        return;
    set_no_start(run, doc ? &o : NULL);
    outcome_fini(&o);
    memcpy(no_start, run->no_start, sizeof no_start);
    AUTO_CLOSE int dir = executor_open_folder(run->base.x->runs, &folder);
    const struct executor_end end = {.run_json = doc,
                                     .no_start = no_start[0] ? no_start : NULL,
                                     .has_folder = dir != -ENOENT,
                                     .is_disk_full = dir == -ENOENT &&
                                                     executor_is_disk_full(run->base.x->runs)};
    bool is_new = !run->is_start_reported && !no_start[0];
    if (run->holder > 0) /* a server that is pid 1 or a subreaper must reap the sentinel */
        waitpid(run->holder, NULL, WNOHANG);
    if (run->has_no_pidfd)
        waitpid(run->child, NULL, WNOHANG);
    local_run_free(run);
    if (is_new)
        callbacks.started(callbacks.user, id);
    callbacks.over(callbacks.user, id, &end);
    json_decref(doc);
}

/* ---- checks ---- */

static void on_holder(void *user, int fd, uint32_t events)
{
    struct local_run *run = user;
    (void)fd;
    (void)events;
    loop_remove(run->holder_source);
    run->holder_source = NULL;
    close_fd(&run->holder_fd);
    local_check(run);
}

static void find_holder(struct local_run *run)
{
    struct local_holder holder;
    if (run->holder > 0 || local_lock_read(run->lock_fd, &holder) < 0)
        return;
    int fd = local_holder_open(&holder);
    if (fd < 0)
        return;
    if (loop_add_fd(run->base.x->loop, fd, EPOLLIN, on_holder, run, &run->holder_source) < 0) {
        close(fd);
        return;
    }
    run->holder_fd = fd;
    run->holder = holder.pid;
}

static void report_started(struct local_run *run)
{
    if (!run->is_started || run->is_start_reported)
        return;
    run->is_start_reported = true;
    run->base.x->callbacks.started(run->base.x->callbacks.user, run->base.id);
}

void local_check(struct local_run *run)
{
    uint64_t now_ns = clock_mono_ns();
    if (run->child_fd >= 0) {
        local_force_check(run, now_ns);
        return;
    }
    find_holder(run);
    if (run->holder_fd < 0) {
        if (executor_lock_is_held(run->lock_fd) == 0) {
            finish(run);
            return;
        }
        local_check_at(run, now_ns + (run->holder > 0 ? LATE_MS : EARLY_MS) * NS_PER_MS);
    }
    if (run->has_no_pidfd) /* reaps the child here, because there is no pidfd to watch */
        waitpid(run->child, NULL, WNOHANG);
    local_control_check(run, now_ns);
    local_force_check(run, now_ns);
    report_started(run);
}
