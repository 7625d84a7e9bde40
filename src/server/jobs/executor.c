/* Starts a job: takes its lock, runs `ebb run --detached`, and reads its error message. */
#include "server/jobs/executor.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "base/loop.h"
#include "server/jobs/executor_private.h"
#include "server/jobs/plan.h"

enum { LOCK_AT = 3 }; /* number of the lock's fd in the child */

/* ---- exit of the child ---- */

/* Reads the last line of the child's standard error, without "ebb: ". */
static void read_error_line(struct executor_run *run)
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

static void child_exited(struct executor_run *run, const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED && info->si_status == 0)
        run->is_started = true;
    else if (info->si_code == CLD_EXITED)
        read_error_line(run);
    else /* the job may still run, which the lock will show */
        run->child_signal = info->si_status ? info->si_status : SIGKILL;
    if (info->si_code == CLD_EXITED && info->si_status != 0 && !run->no_start[0])
        snprintf(run->no_start, sizeof run->no_start, "ebb run exited with status %d",
                 info->si_status);
}

static void on_child(void *user, int fd, uint32_t events)
{
    struct executor_run *run = user;
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
    executor_check(run);
}

/* ---- the start ---- */

static int open_null(int at, int flags)
{
    int fd = open("/dev/null", flags);
    if (fd < 0 || fd == at)
        return fd;
    int r = dup2(fd, at);
    close(fd);
    return r;
}

/* Runs between fork and exec, so it makes only async-signal-safe calls. Returns -errno if exec
 * fails. */
static int exec_child(const struct executor *x, const struct job_launch *launch, const char *cwd,
                      int error_fd, int lock, const sigset_t *mask)
{
    struct rlimit files;

    /* Restores default signal handling, because the loop blocks some signals and the server ignores
     * SIGPIPE. */
    for (int n = 1; n < NSIG; n++)
        signal(n, SIG_DFL);
    setsid(); /* Ctrl-C in the server's terminal must not reach the jobs */
    /* Restores the usual limit, because programs that use select() fail if it is higher. */
    if (x->files_max && getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > x->files_max) {
        files.rlim_cur = (rlim_t)x->files_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (open_null(STDIN_FILENO, O_RDONLY) < 0 || open_null(STDOUT_FILENO, O_WRONLY) < 0 ||
        dup2(error_fd, STDERR_FILENO) < 0 || dup2(lock, LOCK_AT) < 0 || chdir(cwd) < 0)
        return -errno;
    pthread_sigmask(SIG_SETMASK, mask, NULL);
    execve(x->program, launch->argv, launch->env);
    return -errno;
}

/* Moves FD above the numbers that the child assigns with dup2, which would otherwise close it. */
static int move_up(int fd)
{
    if (fd > LOCK_AT)
        return fd;
    int up = fcntl(fd, F_DUPFD_CLOEXEC, LOCK_AT + 1);
    int r = up < 0 ? -errno : up;
    close(fd);
    return r;
}

/* Starts a process. posix_spawn is not used, because it can create a session only since glibc 2.26
 * and change the working folder only since 2.29. A close-on-exec pipe reports a failed exec. */
static int spawn(const struct executor *x, const struct job_launch *launch, const char *cwd,
                 int error_fd, int lock, pid_t *ret)
{
    int result[2], r = 0;
    sigset_t all, own, mask;
    if (pipe2(result, O_CLOEXEC) < 0)
        return -errno;
    result[1] = move_up(result[1]);
    if (result[1] < 0) {
        close(result[0]);
        return result[1];
    }
    loop_original_mask(x->loop, &mask);
    sigfillset(&all);
    /* all signals are blocked, because our handlers must not run in the child */
    pthread_sigmask(SIG_SETMASK, &all, &own);
    pid_t pid = fork();
    if (pid == 0) {
        r = exec_child(x, launch, cwd, error_fd, lock, &mask);
        _exit(write(result[1], &r, sizeof r) < 0 ? 126 : 127);
    }
    if (pid < 0)
        r = -errno;
    pthread_sigmask(SIG_SETMASK, &own, NULL);
    close(result[1]);
    if (pid > 0 && read(result[0], &r, sizeof r) > 0)
        waitpid(pid, NULL, 0);
    close(result[0]);
    if (r == 0)
        *ret = pid;
    return r;
}

static int launch_child(struct executor_run *run, const struct job_launch *launch, const char *cwd,
                        int lock)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    run->stderr_fd = ends[0];
    int theirs = move_up(ends[1]);
    if (theirs < 0)
        return theirs;
    fcntl(theirs, F_SETFL, 0); /* the child expects its pipe to be blocking */
    int r = spawn(run->x, launch, cwd, theirs, lock, &run->child);
    close(theirs);
    if (r < 0)
        return r;
    run->child_fd = io_pidfd_open(run->child);
    return run->child_fd < 0 ? run->child_fd : 0;
}

/* Starts a child that inherits the lock. The server keeps an open file description of its own, to
 * test whether the lock is held. */
static int start_locked(struct executor_run *run, const struct job_spec *spec, int lock,
                        uint64_t gpus)
{
    char path[4096], gpu_text[PLAN_GPU_TEXT];
    struct job_launch launch = {0};
    const struct executor *x = run->x;
    if (snprintf(path, sizeof path, "%s/%s", x->runs_path, run->run_dir) >= (int)sizeof path)
        return -ENAMETOOLONG;
    run->lock_fd = executor_lock_open(x, run->id);
    if (run->lock_fd < 0)
        return run->lock_fd;
    const struct job_place place = {.run_dir = path,
                                    .folder_id = run->folder_id,
                                    .lock_fd = LOCK_AT,
                                    .interval_ns = x->interval_ns,
                                    .log_bytes = x->log_bytes};
    plan_gpu_text(gpus, gpu_text);
    int r = job_spec_launch(spec, x->program, &place, gpu_text, &launch);
    if (r == 0)
        r = launch_child(run, &launch, spec->cwd, lock);
    job_launch_fini(&launch);
    return r;
}

/* ---- ebb sweep ---- */

static int launch_sweep(struct executor_run *run, int lock)
{
    char path[4096], lock_fd[32], folder_id[EXECUTOR_NAME_MAX + 16], command[] = "sweep";
    const struct executor *x = run->x;
    if (snprintf(path, sizeof path, "%s/%s", x->runs_path, run->run_dir) >= (int)sizeof path)
        return -ENAMETOOLONG;
    snprintf(lock_fd, sizeof lock_fd, "--lock-fd=%d", LOCK_AT);
    snprintf(folder_id, sizeof folder_id, "--folder-id=%s", run->folder_id);
    char *argv[] = {(char *)(uintptr_t)x->program, command, lock_fd, folder_id, path, NULL};
    const struct job_launch launch = {.argv = argv, .env = environ};
    int r = launch_child(run, &launch, "/", lock);
    if (r == 0)
        r = loop_add_fd(x->loop, run->child_fd, EPOLLIN, on_child, run, &run->child_source);
    return r;
}

bool executor_sweep(struct executor_run *run)
{
    struct executor_holder holder;
    if (run->is_swept || executor_lock_read(run->lock_fd, &holder) < 0)
        return false;
    run->is_swept = true;
    int lock = executor_lock_take(run->x, run->id);
    if (lock >= 0)
        lock = move_up(lock);
    if (lock < 0)
        return false;
    executor_control_drop(run);
    run->holder = 0;
    int r = launch_sweep(run, lock);
    close(lock);
    return r == 0;
}

int executor_start(struct executor *x, int64_t id, const struct job_spec *spec,
                   const struct executor_folder *folder, uint64_t gpus, struct executor_run **ret,
                   struct err *err)
{
    struct executor_run *run = executor_run_new(x, id, folder);
    if (!run)
        return err_set(err, -ENOMEM, "out of memory");
    int lock = executor_lock_take(x, id);
    if (lock >= 0)
        lock = move_up(lock);
    int r = lock < 0 ? lock : start_locked(run, spec, lock, gpus);
    if (lock >= 0)
        close(lock);
    bool is_running = run->child > 0;
    if (r == 0)
        r = loop_add_fd(x->loop, run->child_fd, EPOLLIN, on_child, run, &run->child_source);
    if (r < 0 && is_running) { /* the child runs, but has no pidfd, so only the lock is watched */
        run->has_no_pidfd = true;
        executor_check_at(run, clock_mono_ns());
        r = 0;
    }
    if (r < 0) {
        executor_run_free(run);
        return err_set(err, r, "cannot start %s: %s", x->program, strerror(-r));
    }
    *ret = run;
    return 0;
}

/* Follows a job that an earlier server started. Takes ownership of LOCK. */
static int take_over(struct executor *x, int64_t id, const struct executor_folder *folder, int lock,
                     struct executor_run **ret, struct err *err)
{
    struct executor_run *run = executor_run_new(x, id, folder);
    if (!run) {
        close(lock);
        return err_set(err, -ENOMEM, "out of memory");
    }
    run->lock_fd = lock;
    executor_check_at(run, clock_mono_ns());
    *ret = run;
    return 0;
}

/* Finds out what happened to a job whose lock is free. */
static enum executor_found found_free(const struct executor *x,
                                      const struct executor_folder *folder, bool was_signed,
                                      json_t **ret_json)
{
    json_t *doc = NULL;
    struct outcome o = {0};
    AUTO_CLOSE int dir = executor_open_folder(x, folder);
    /* The lock is signed after the folder is created. If the lock is signed and the folder is
     * missing, a user has removed the folder. */
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

int executor_find(struct executor *x, int64_t id, const struct executor_folder *folder,
                  enum executor_found *found, struct executor_run **ret, json_t **ret_json,
                  struct err *err)
{
    struct executor_holder holder;
    int lock = executor_lock_open(x, id);
    int held = lock >= 0 ? executor_lock_is_held(lock) : lock == -ENOENT ? 0 : lock;
    bool was_signed = lock >= 0 && executor_lock_read(lock, &holder) == 0;
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

int executor_is_held(const struct executor *x, int64_t id)
{
    AUTO_CLOSE int lock = executor_lock_open(x, id);
    return lock >= 0 ? executor_lock_is_held(lock) : lock == -ENOENT ? 0 : lock;
}

void executor_forget(struct executor *x, int64_t id)
{
    char name[24];
    snprintf(name, sizeof name, "%lld", (long long)id);
    unlinkat(x->locks_fd, name, 0);
}

void executor_release(struct executor_run *run)
{
    executor_run_free(run);
}
