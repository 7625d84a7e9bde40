/* Starting a job: the lock, `ebb run --detached`, and what it said if it could not. */
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

enum { LOCK_AT = 3 }; /* the child's number for the lock */

/* ---- the child has ended ---- */

/* Its last line, without "ebb: " before it. */
static void take_words(struct executor_run *run)
{
    char text[4096];
    ssize_t n = read(run->words_fd, text, sizeof text - 1);
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

static void child_gone(struct executor_run *run, const siginfo_t *info)
{
    if (info->si_code == CLD_EXITED && info->si_status == 0)
        run->is_started = true;
    else if (info->si_code == CLD_EXITED)
        take_words(run);
    else /* the job may live all the same: the lock shows it */
        run->child_signal = info->si_status ? info->si_status : SIGKILL;
    if (info->si_code == CLD_EXITED && info->si_status != 0 && !run->no_start[0])
        snprintf(run->no_start, sizeof run->no_start, "ebb run ended with status %d",
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
        child_gone(run, &info);
    close(run->words_fd);
    run->words_fd = -1;
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

/* In the child of fork, until it is the program: makes only calls that are safe there. -errno. */
static int exec_child(const struct executor *x, const struct job_launch *launch, const char *cwd,
                      int words, int lock, const sigset_t *mask)
{
    struct rlimit files;

    /* Signals as a program expects them: the loop blocks some, and the server ignores SIGPIPE. */
    for (int n = 1; n < NSIG; n++)
        signal(n, SIG_DFL);
    setsid(); /* Ctrl-C at the server's terminal is not for the jobs */
    /* Programs that use select() do not bear more files than they expect. */
    if (x->files_max && getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > x->files_max) {
        files.rlim_cur = (rlim_t)x->files_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (open_null(STDIN_FILENO, O_RDONLY) < 0 || open_null(STDOUT_FILENO, O_WRONLY) < 0 ||
        dup2(words, STDERR_FILENO) < 0 || dup2(lock, LOCK_AT) < 0 || chdir(cwd) < 0)
        return -errno;
    pthread_sigmask(SIG_SETMASK, mask, NULL);
    execve(x->program, launch->argv, launch->env);
    return -errno;
}

/* Away from the numbers that the child's own streams and lock get: a dup2 there would overwrite it
 * before it is used. */
static int move_up(int fd)
{
    if (fd > LOCK_AT)
        return fd;
    int up = fcntl(fd, F_DUPFD_CLOEXEC, LOCK_AT + 1);
    int r = up < 0 ? -errno : up;
    close(fd);
    return r;
}

/* posix_spawn has a new session and a folder only since glibc 2.26 and 2.29. A pipe that exec
 * closes says what failed. */
static int spawn(const struct executor *x, const struct job_launch *launch, const char *cwd,
                 int words, int lock, pid_t *ret)
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
    pthread_sigmask(SIG_SETMASK, &all, &own); /* no handler of ours runs in the child */
    pid_t pid = fork();
    if (pid == 0) {
        r = exec_child(x, launch, cwd, words, lock, &mask);
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
    int words[2];
    if (pipe2(words, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    run->words_fd = words[0];
    int theirs = move_up(words[1]);
    if (theirs < 0)
        return theirs;
    fcntl(theirs, F_SETFL, 0); /* the child writes as to any file */
    int r = spawn(run->x, launch, cwd, theirs, lock, &run->child);
    close(theirs);
    if (r < 0)
        return r;
    run->child_fd = io_pidfd_open(run->child);
    return run->child_fd < 0 ? run->child_fd : 0;
}

/* The lock is the child's from here on; what we keep is a description of our own to ask by. */
static int start_locked(struct executor_run *run, const struct job_spec *spec, int lock,
                        const int *gpus, size_t gpu_count)
{
    char path[4096];
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
    int r = job_spec_launch(spec, x->program, &place, gpus, gpu_count, &launch);
    if (r == 0)
        r = launch_child(run, &launch, spec->cwd, lock);
    job_launch_fini(&launch);
    return r;
}

/* ---- what nobody watches any more ---- */

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
                   const struct executor_folder *folder, const int *gpus, size_t gpu_count,
                   struct executor_run **ret, struct err *err)
{
    struct executor_run *run = executor_run_new(x, id, folder);
    if (!run)
        return err_set(err, -ENOMEM, "out of memory");
    int lock = executor_lock_take(x, id);
    if (lock >= 0)
        lock = move_up(lock);
    int r = lock < 0 ? lock : start_locked(run, spec, lock, gpus, gpu_count);
    if (lock >= 0)
        close(lock);
    bool is_running = run->child > 0;
    if (r == 0)
        r = loop_add_fd(x->loop, run->child_fd, EPOLLIN, on_child, run, &run->child_source);
    if (r < 0 && is_running) { /* it is under way: without a pidfd the lock alone shows it */
        run->is_blind = true;
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

/* Takes LOCK. */
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

/* Nobody holds its lock. */
static enum executor_found found_free(const struct executor *x,
                                      const struct executor_folder *folder, bool was_signed,
                                      json_t **ret_json)
{
    json_t *doc = NULL;
    AUTO_CLOSE int dir = executor_open_folder(x, folder);
    if (dir == -ENOENT)
        /* its folder was made before the lock was signed: somebody has removed it since */
        return was_signed ? EXECUTOR_LOST : EXECUTOR_NEVER_STARTED;
    executor_read_json(x, folder, EXECUTOR_JSON_MAX, &doc);
    if (doc && executor_json_is_ended(doc)) {
        *ret_json = doc;
        return EXECUTOR_ENDED;
    }
    json_decref(doc);
    return EXECUTOR_LOST;
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
        return err_set(err, held, "cannot look at the lock of job %lld: %s", (long long)id,
                       strerror(-held));
    }
    *found = held ? EXECUTOR_ALIVE : found_free(x, folder, was_signed, ret_json);
    /* of a lost one processes may live on: it is over when those have been ended */
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
