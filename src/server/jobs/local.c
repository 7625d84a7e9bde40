/* Runs jobs on this machine: `ebb run --detached` in its own process tree, which outlives the
 * server. `ebb run`, the job's sentinel and its supervisor inherit the lock, which is held while
 * one of them is alive. So after a restart the server knows: if the lock is held, the job runs; if
 * there is no run folder, it was never started; if run.json says "ended", it has ended; otherwise
 * it is lost, and `ebb sweep` kills its remaining processes. */
#include "server/jobs/executor.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/loop.h"
#include "server/jobs/child_process.h"
#include "server/jobs/local_private.h"
#include "server/jobs/plan.h"

/* ---- exit of the child ---- */

/* Returns the last line that the child wrote to its standard error, without "ebb: ". */
static void read_error_line(struct local_run *run)
{
    char text[4096];
    ssize_t n = read(run->stderr_fd, text, sizeof text - 1);
    size_t len = n > 0 ? (size_t)n : 0;
    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
        len--;
    text[len] = '\0';
    const char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    if (strncmp(line, "ebb: ", 5) == 0)
        line += 5;
    snprintf(run->no_start, sizeof run->no_start, "%.*s", EXECUTOR_SENTENCE_MAX - 1, line);
}

static void child_exited(struct local_run *run, const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED && info->si_status == 0)
        run->is_started = true;
    else if (info->si_code == CLD_EXITED)
        read_error_line(run);
    else /* the job may still run; local_check tests the lock */
        run->child_signal = info->si_status ? info->si_status : SIGKILL;
    if (info->si_code == CLD_EXITED && info->si_status != 0 && !run->no_start[0])
        snprintf(run->no_start, sizeof run->no_start, "ebb run exited with status %d",
                 info->si_status);
}

static void on_child(void *user, int fd, uint32_t events)
{
    struct local_run *run = user;
    bool was_sweep = run->is_swept;
    siginfo_t info = {.si_code = CLD_KILLED};
    (void)fd;
    (void)events;
    if (waitid(P_PID, (id_t)run->child, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0)
        return;
    loop_remove(run->child_source);
    run->child_source = NULL;
    close(run->child_fd);
    run->child_fd = -1;
    if (!was_sweep)
        child_exited(run, &info);
    close(run->stderr_fd);
    run->stderr_fd = -1;
    local_check(run);
}

/* ---- the start ---- */

static int launch_child(struct local_run *run, const struct job_launch *launch, const char *cwd,
                        int lock)
{
    const struct executor *x = run->base.x;
    struct child_setup setup = {.program = x->program,
                                .argv = launch->argv,
                                .env = launch->env,
                                .cwd = cwd,
                                .files_max = x->files_max,
                                .out_fd = -1,
                                .lock_fd = lock};
    int r = child_pipe(&run->stderr_fd, &setup.err_fd);
    if (r < 0)
        return r;
    r = child_process_start(x->loop, &setup, &run->child);
    close(setup.err_fd);
    if (r < 0)
        return r;
    run->child_fd = io_pidfd_open(run->child);
    return run->child_fd < 0 ? run->child_fd : 0;
}

/* Starts a child that inherits the lock. The server keeps an open file description of its own, to
 * test whether the lock is held. */
static int start_locked(struct local_run *run, const struct job_spec *spec, int lock, uint64_t gpus)
{
    char path[4096], gpu_text[PLAN_GPU_TEXT];
    struct job_launch launch = {0};
    const struct executor *x = run->base.x;
    if (snprintf(path, sizeof path, "%s/%s", x->runs_path, run->base.run_dir) >= (int)sizeof path)
        return -ENAMETOOLONG;
    run->lock_fd = executor_lock_open(x, run->base.id);
    if (run->lock_fd < 0)
        return run->lock_fd;
    const struct job_place place = {.run_dir = path,
                                    .folder_id = run->base.folder_id,
                                    .lock_fd = CHILD_LOCK_FD,
                                    .interval_ns = x->interval_ns,
                                    .log_bytes = x->log_bytes};
    plan_gpu_text(gpus, gpu_text);
    int r = job_spec_launch(spec, NULL, x->program, &place, gpu_text, &launch);
    if (r == 0)
        r = launch_child(run, &launch, spec->cwd, lock);
    job_launch_fini(&launch);
    return r;
}

/* ---- ebb sweep ---- */

static int launch_sweep(struct local_run *run, int lock)
{
    char path[4096], lock_fd[32], folder_id[EXECUTOR_NAME_MAX + 16], command[] = "sweep";
    const struct executor *x = run->base.x;
    if (snprintf(path, sizeof path, "%s/%s", x->runs_path, run->base.run_dir) >= (int)sizeof path)
        return -ENAMETOOLONG;
    snprintf(lock_fd, sizeof lock_fd, "--lock-fd=%d", CHILD_LOCK_FD);
    snprintf(folder_id, sizeof folder_id, "--folder-id=%s", run->base.folder_id);
    char *argv[] = {(char *)(uintptr_t)x->program, command, lock_fd, folder_id, path, NULL};
    const struct job_launch launch = {.argv = argv, .env = environ};
    int r = launch_child(run, &launch, "/", lock);
    if (r == 0)
        r = loop_add_fd(x->loop, run->child_fd, EPOLLIN, on_child, run, &run->child_source);
    return r;
}

bool local_sweep(struct local_run *run)
{
    struct local_holder holder;
    if (run->is_swept || local_lock_read(run->lock_fd, &holder) < 0)
        return false;
    run->is_swept = true;
    int lock = child_fd_move_up(executor_lock_take(run->base.x, run->base.id));
    if (lock < 0)
        return false;
    local_control_drop(run);
    run->holder = 0;
    int r = launch_sweep(run, lock);
    close(lock);
    return r == 0;
}

static int local_start(struct executor *x, int64_t id, const struct job_spec *spec,
                       const struct executor_folder *folder, uint64_t gpus,
                       struct executor_run **ret, struct err *err)
{
    struct local_run *run = local_run_new(x, id, folder);
    if (!run)
        return err_set(err, -ENOMEM, "out of memory");
    int lock = child_fd_move_up(executor_lock_take(x, id));
    int r = lock < 0 ? lock : start_locked(run, spec, lock, gpus);
    if (lock >= 0)
        close(lock);
    bool is_running = run->child > 0;
    if (r == 0)
        r = loop_add_fd(x->loop, run->child_fd, EPOLLIN, on_child, run, &run->child_source);
    if (r < 0 && is_running) { /* the child runs without a pidfd, so its lock is watched instead */
        run->has_no_pidfd = true;
        local_check_at(run, clock_mono_ns());
        r = 0;
    }
    if (r < 0) {
        local_run_free(run);
        return err_set(err, r, "cannot start %s: %s", x->program, strerror(-r));
    }
    *ret = &run->base;
    return 0;
}

/* Follows a job that an earlier server started. Takes ownership of LOCK. */
static int take_over(struct executor *x, int64_t id, const struct executor_folder *folder, int lock,
                     struct executor_run **ret, struct err *err)
{
    struct local_run *run = local_run_new(x, id, folder);
    if (!run) {
        close(lock);
        return err_set(err, -ENOMEM, "out of memory");
    }
    run->lock_fd = lock;
    local_check_at(run, clock_mono_ns());
    *ret = &run->base;
    return 0;
}

/* Finds out what happened to a job whose lock is free. */
static enum executor_found found_free(const struct executor *x,
                                      const struct executor_folder *folder, bool was_signed,
                                      json_t **ret_json)
{
    json_t *doc = NULL;
    struct outcome o = {0};
    AUTO_CLOSE int dir = executor_open_folder(x->runs, folder);
    /* The holder signs the lock once it has created the folder. So if the lock is signed and the
     * folder is missing, a user has removed the folder. */
    if (dir == -ENOENT)
        return was_signed ? EXECUTOR_LOST : EXECUTOR_NEVER_STARTED;
    executor_read_run(x, folder, EXECUTOR_JSON_MAX, &doc, &o);
    bool is_ended = executor_is_ended(&o);
    outcome_fini(&o);
    if (is_ended)
        *ret_json = doc;
    else
        json_decref(doc);
    return is_ended ? EXECUTOR_ENDED : EXECUTOR_LOST;
}

static int local_find(struct executor *x, int64_t id, const struct executor_folder *folder,
                      enum executor_found *found, struct executor_run **ret, json_t **ret_json,
                      struct err *err)
{
    struct local_holder holder;
    int lock = executor_lock_open(x, id);
    int held = lock >= 0 ? executor_lock_is_held(lock) : lock == -ENOENT ? 0 : lock;
    bool was_signed = lock >= 0 && local_lock_read(lock, &holder) == 0;
    if (held < 0) {
        if (lock >= 0)
            close(lock);
        return err_set(err, held, "cannot read the lock of job %lld: %s", (long long)id,
                       strerror(-held));
    }
    *found = held ? EXECUTOR_ALIVE : found_free(x, folder, was_signed, ret_json);
    /* Processes of a lost job may still run. The job has ended once `ebb sweep` has killed them. */
    if (*found == EXECUTOR_LOST && was_signed)
        *found = EXECUTOR_ALIVE;
    if (*found == EXECUTOR_ALIVE)
        return take_over(x, id, folder, lock, ret, err);
    if (lock >= 0)
        close(lock);
    return 0;
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
                                             .find = local_find,
                                             .cancel = local_cancel,
                                             .cancel_again = local_cancel_again,
                                             .checkpoint = local_checkpoint,
                                             .release = local_release};
