/* Runs jobs on this machine: `ebb run --detached` in its own process tree, which outlives the
 * server. `ebb run`, the job's sentinel and its supervisor inherit the lock, which is held while
 * one of them is alive. So a restarted server knows the state of each job. If the lock is held, the
 * job runs. If there is no run folder, the job was never started. If run.json says "ended", the job
 * has ended. Otherwise the job is lost, and `ebb sweep` kills its remaining processes. */
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
#include "base/err.h"
#include "base/io.h"
#include "base/loop.h"
#include "base/number.h"
#include "base/text.h"
#include "guard/sweep.h"
#include "proc/procfs.h"
#include "server/jobs/command.h"
#include "server/jobs/jobs.h"
#include "server/jobs/local_private.h"
#include "server/jobs/plan.h"

enum {
    EARLY_MS = 50, /* time between checks while the sentinel is not known yet */
    /* time between checks while the sentinel has exited but the lock is still held */
    LATE_MS = 500,
};

/* Checks which process holds the lock, whether the job has ended, and whether to connect to the
 * control socket. May call `over`, which frees RUN. */
static void local_check(struct local_run *run);

/* ---- the lock ---- */

/* Reads the pid and start time of the sentinel, which holds the lock and writes them into the lock
 * file. Returns 0, -ENOENT if they are not written yet, or -EBADMSG. */
static int local_lock_read(int lock_fd, struct process_id *ret)
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
    *ret = (struct process_id){.pid = (int32_t)pid, .start_ticks = (uint64_t)ticks};
    return 0;
}

static int read_stat(int32_t pid, struct proc_stat *ret)
{
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof text);
    if (len <= 0)
        return len == 0 || len == -ENOENT ? -ESRCH : (int)len;
    return proc_stat_parse(text, (size_t)len, ret);
}

/* Opens a pidfd of the process HOLDER. Returns -ESRCH if it does not exist or its pid was reused,
 * or another -errno. Compares the start time after opening the pidfd, so that the pidfd is certain
 * to refer to HOLDER. */
static int local_holder_open(const struct process_id *holder)
{
    struct proc_stat stat;
    int fd = io_pidfd_open(holder->pid);
    int r = fd < 0 ? fd : read_stat(holder->pid, &stat);
    if (fd == -ENOENT || fd == -EINVAL) /* the pid is now the id of a thread of another process */
        r = -ESRCH;
    if (r == 0 && stat.start_ticks != holder->start_ticks)
        r = -ESRCH;
    if (r == 0)
        return fd;
    close_fd(&fd);
    return r;
}

/* ---- supervisors that do not react to a cancel ---- */

enum {
    WAKE_S = 2, /* time between two SIGCONT signals */
};

/* True if the process with STAT is a child of the sentinel, as the supervisor is, or if the
 * sentinel no longer exists. A process of the job can imitate the supervisor's name but not its
 * parent. False if it cannot be determined, because the supervisor may be killed later. */
static bool is_child_of_sentinel(const struct local_run *run, const struct proc_stat *stat)
{
    struct process_id holder;
    if (local_lock_read(run->lock_fd, &holder) < 0)
        return false;
    AUTO_CLOSE int fd = local_holder_open(&holder);
    return fd < 0 ? fd == -ESRCH : stat->ppid == holder.pid;
}

void local_note_supervisor(struct local_run *run, int32_t pid)
{
    struct proc_stat stat;
    if (read_stat(pid, &stat) == 0 && strcmp(stat.comm, "ebb-supervisor") == 0 &&
        is_child_of_sentinel(run, &stat))
        run->supervisor = (struct process_id){.pid = pid, .start_ticks = stat.start_ticks};
}

/* Searches for the supervisor among the children of the sentinel, if the server was never connected
 * to it. */
static void find_supervisor(struct local_run *run, const struct process_id *holder)
{
    char path[64], text[256];
    int32_t pids[8];
    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)holder->pid, (int)holder->pid);
    ssize_t len = io_read_small(AT_FDCWD, path, text, sizeof text);
    size_t count = len > 0 ? proc_pids_parse(text, (size_t)len, pids, 8) : 0;
    for (size_t i = 0; i < count && run->supervisor.pid == 0; i++)
        local_note_supervisor(run, pids[i]);
}

/* Sends SIGKILL to the supervisor if IS_OVER is set, else SIGCONT. Always sends SIGCONT to the
 * sentinel, which ends the job once the supervisor is dead. */
static void force(struct local_run *run, const struct proc_root *root, bool is_over)
{
    struct process_id holder;
    if (local_lock_read(run->lock_fd, &holder) == 0 && guard_signal(root, &holder, SIGCONT) == 0 &&
        run->supervisor.pid == 0)
        find_supervisor(run, &holder);
    if (run->supervisor.pid > 0)
        guard_signal(root, &run->supervisor, is_over ? SIGKILL : SIGCONT);
}

/* Called after a cancel. Sends SIGCONT to the supervisor and the sentinel, which may have been
 * stopped with SIGSTOP. If the job outlives the grace period by force_ns, kills the supervisor; the
 * sentinel then ends the job. */
static void local_force_check(struct local_run *run, uint64_t now_ns)
{
    struct executor_cancel *c = &run->base.cancel;
    struct proc_root root;
    if (!c->is_wanted)
        return;
    if (now_ns >= c->retry_ns && proc_root_open("/proc", "/sys/fs/cgroup", &root, NULL) == 0) {
        force(run, &root, executor_cancel_is_late(c, now_ns, run->base.x->options->force_ns));
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

static struct local_run *local_run_new(struct executor *x, int64_t id,
                                       const struct job_folder *folder)
{
    struct local_run *run = calloc(1, sizeof *run);
    if (!run)
        return NULL;
    run->lock_fd = run->holder_fd = -1;
    run->timer_ns = UINT64_MAX;
    channel_init(&run->channel, -1);
    run->base = (struct executor_run){.x = x, .id = id, .folder = *folder};
    if (loop_add_timer(x->loop, UINT64_MAX / 2, 0, on_check_timer, run, &run->timer) < 0) {
        free(run);
        return NULL;
    }
    return run;
}

static void local_run_free(struct local_run *run)
{
    if (!run)
        return;
    local_control_drop(run);
    command_release(run->child, false);
    loop_remove(run->holder_source);
    loop_remove(run->timer);
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

/* ---- ebb sweep ---- */

static int launch_child(struct local_run *run, const struct job_launch *launch, const char *cwd,
                        int lock, command_done_fn *fn)
{
    const struct executor *x = run->base.x;
    const struct command_setup setup = {.program = x->options->program,
                                        .argv = launch->argv,
                                        .env = launch->env,
                                        .cwd = cwd,
                                        .files_max = x->options->files_max,
                                        .out_fd = -1,
                                        .lock_fd = lock};
    return command_start(x->loop, &setup, fn, run, &run->child);
}

static void on_swept(void *user, int status, const char *output, size_t len, const char *error)
{
    struct local_run *run = user;
    (void)status, (void)output, (void)len, (void)error;
    run->child = NULL;
    local_check(run);
}

static int launch_sweep(struct local_run *run, int lock)
{
    char path[PATH_MAX], lock_fd[32], folder_id[64], command[] = "sweep";
    const struct executor *x = run->base.x;
    if (executor_run_path(&run->base, path) < 0)
        return -ENAMETOOLONG;
    snprintf(lock_fd, sizeof lock_fd, "--lock-fd=%d", COMMAND_LOCK_FD);
    snprintf(folder_id, sizeof folder_id, "--folder-id=%s", run->base.folder.id);
    char *argv[] = {
        (char *)(uintptr_t)x->options->program, command, lock_fd, folder_id, path, NULL};
    const struct job_launch launch = {.argv = argv, .env = environ};
    return launch_child(run, &launch, NULL, lock, on_swept);
}

/* Call this if the lock is free but run.json does not contain the end of the job: processes of the
 * job may still run. Starts `ebb sweep`, which kills them and holds the lock until all of them have
 * exited. Returns true if it was started. */
static bool local_sweep(struct local_run *run)
{
    struct process_id holder;
    if (run->is_swept || local_lock_read(run->lock_fd, &holder) < 0)
        return false;
    run->is_swept = true;
    AUTO_CLOSE int lock = executor_lock_take(run->base.x, run->base.id);
    if (lock < 0)
        return false;
    local_control_drop(run);
    run->holder = 0;
    return launch_sweep(run, lock) == 0;
}

/* ---- the end ---- */

/* True if an earlier server was killed before it started the job. Call this only if RUN has no run
 * folder. The process that holds the lock creates the folder before it signs the lock. So if the
 * lock is signed, the job was started, and a user has removed its folder. */
static bool is_never_started(const struct local_run *run)
{
    struct process_id holder;
    return !run->is_own_start && !run->is_swept && local_lock_read(run->lock_fd, &holder) < 0;
}

/* Sets the reason why the command was never executed. O is the end in run.json, or NULL if
 * unknown. */
static void set_no_start(struct local_run *run, const struct outcome *o)
{
    const struct job_folder folder = run->base.folder;
    const bool has_run = o && o->end.kind != OUTCOME_UNKNOWN && o->end.kind != OUTCOME_NOT_STARTED;
    /* `ebb sweep` is used only if the lock is signed, which means that the job was started */
    const bool is_started = run->is_started || run->is_swept || has_run;
    /* if the job was started, an error of `ebb run` only means that its supervisor was killed */
    if (is_started && o)
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

/* Handles a job whose lock is free. */
static void finish(struct local_run *run)
{
    json_t *doc = NULL;
    struct outcome o = {0};
    struct jobs *jobs = run->base.x->jobs;
    const int64_t id = run->base.id;
    const struct job_folder folder = run->base.folder;
    char no_start[EXECUTOR_SENTENCE_MAX];
    AUTO_CLOSE int dir = executor_open_folder(run->base.x->runs, &folder);
    if (dir == -ENOENT && is_never_started(run)) {
        local_run_free(run);
        jobs_run_unstarted(jobs, id);
        return;
    }
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
    const struct executor_end end = {.run_json = doc,
                                     .no_start = no_start[0] ? no_start : NULL,
                                     .has_folder = dir != -ENOENT,
                                     .is_disk_full = dir == -ENOENT &&
                                                     executor_is_disk_full(run->base.x->runs)};
    bool is_new = !run->is_start_reported && !no_start[0];
    if (run->holder > 0) /* a server that is pid 1 or a subreaper must reap the sentinel */
        waitpid(run->holder, NULL, WNOHANG);
    local_run_free(run);
    if (is_new)
        jobs_run_started(jobs, id);
    jobs_run_over(jobs, id, &end);
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
    struct process_id holder;
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
    jobs_run_started(run->base.x->jobs, run->base.id);
}

/* Returns 1 if the lock is held, 0 if it is free or has no file, or -errno if its state is
 * unknown. */
static int is_lock_held(struct local_run *run)
{
    if (run->lock_fd < 0)
        run->lock_fd = executor_lock_open(run->base.x, run->base.id);
    if (run->lock_fd < 0)
        return run->lock_fd == -ENOENT ? 0 : run->lock_fd;
    return executor_lock_is_held(run->lock_fd);
}

/* If ERROR is not 0, reports that the lock cannot be read, and that it is therefore unknown whether
 * the job runs. If ERROR is 0, withdraws an earlier report. */
static void report_lock(struct local_run *run, int error)
{
    char text[EXECUTOR_SENTENCE_MAX];
    snprintf(text, sizeof text,
             "cannot determine whether job %lld is running: cannot read its lock: %s",
             (long long)run->base.id, strerror(-error));
    if (error < 0 || run->is_lock_unknown)
        jobs_run_trouble(run->base.x->jobs, error < 0 ? text : NULL);
    run->is_lock_unknown = error < 0;
}

static void local_check(struct local_run *run)
{
    uint64_t now_ns = clock_mono_ns();
    if (run->child) {
        local_force_check(run, now_ns);
        return;
    }
    find_holder(run);
    if (run->holder_fd < 0) {
        int held = is_lock_held(run);
        report_lock(run, held < 0 ? held : 0);
        if (held == 0) {
            finish(run);
            return;
        }
        local_check_at(run,
                       now_ns + (run->holder > 0 || held < 0 ? LATE_MS : EARLY_MS) * NS_PER_MS);
        if (held < 0)
            return;
    }
    local_control_check(run, now_ns);
    local_force_check(run, now_ns);
    report_started(run);
}

/* ---- the start ---- */

static void on_child(void *user, int status, const char *output, size_t len, const char *error)
{
    struct local_run *run = user;
    (void)output, (void)len;
    run->child = NULL;
    if (status == 0)
        run->is_started = true;
    else if (status > 128) /* the job may still run; local_check tests the lock */
        run->child_signal = status - 128;
    else if (error[0])
        text_copy(run->no_start, sizeof run->no_start, error);
    else
        snprintf(run->no_start, sizeof run->no_start, "ebb run exited with status %d", status);
    local_check(run);
}

/* Starts a child that inherits the lock. The server keeps an open file description of its own, to
 * test whether the lock is held. */
static int start_locked(struct local_run *run, const struct job_spec *spec, int lock, uint64_t gpus)
{
    char path[PATH_MAX], gpu_text[PLAN_GPU_TEXT];
    struct job_launch launch = {0};
    const struct executor *x = run->base.x;
    if (executor_run_path(&run->base, path) < 0)
        return -ENAMETOOLONG;
    run->lock_fd = executor_lock_open(x, run->base.id);
    if (run->lock_fd < 0)
        return run->lock_fd;
    const struct job_place place = {.run_dir = path,
                                    .folder_id = run->base.folder.id,
                                    .lock_fd = COMMAND_LOCK_FD,
                                    .interval_ns = x->options->interval_ns,
                                    .log_bytes = x->options->log_bytes};
    plan_gpu_text(gpus, gpu_text);
    int r = job_spec_launch(spec, NULL, x->options->program, &place, gpu_text, &launch);
    if (r == 0)
        r = launch_child(run, &launch, spec->cwd, lock, on_child);
    job_launch_fini(&launch);
    return r;
}

static int local_start(struct executor *x, int64_t id, const struct job_spec *spec,
                       const struct job_folder *folder, uint64_t gpus, struct executor_run **ret,
                       struct err *err)
{
    struct local_run *run = local_run_new(x, id, folder);
    if (!run)
        return err_set(err, -ENOMEM, "out of memory");
    run->is_own_start = true;
    AUTO_CLOSE int lock = executor_lock_take(x, id);
    int r = lock < 0 ? lock : start_locked(run, spec, lock, gpus);
    if (r < 0) {
        local_run_free(run);
        return err_set(err, r, "cannot start %s: %s", x->options->program, strerror(-r));
    }
    *ret = &run->base;
    return 0;
}

static struct executor_run *local_follow(struct executor *x, int64_t id,
                                         const struct job_folder *folder)
{
    struct local_run *run = local_run_new(x, id, folder);
    if (!run)
        return NULL;
    local_check_at(run, clock_mono_ns());
    return &run->base;
}

static void local_release(struct executor_run *run)
{
    local_run_free((struct local_run *)run);
}

static int local_check_spec(const struct executor *x, const struct job_spec *spec, struct err *err)
{
    (void)x;
    if (json_object_size(json_object_get(spec->doc, "slurm")) == 0)
        return 0;
    return err_set(err, -EINVAL,
                   "slurm: this server runs jobs on its own machine; omit slurm, or start the "
                   "server with --executor slurm");
}

const struct executor_kind executor_local = {.name = "local",
                                             .owns_machine = true,
                                             .check = local_check_spec,
                                             .start = local_start,
                                             .follow = local_follow,
                                             .cancel = local_cancel,
                                             .cancel_again = local_cancel_again,
                                             .checkpoint = local_checkpoint,
                                             .release = local_release};
