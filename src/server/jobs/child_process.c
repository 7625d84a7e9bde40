/* Starts a process with fork and exec. posix_spawn can create a session only since glibc 2.26, and
 * change the working folder only since 2.29. */
#include "server/jobs/child_process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/loop.h"

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
static int exec_child(const struct child_setup *c, const sigset_t *mask)
{
    struct rlimit files;

    /* Restores default signal handling, because the loop blocks some signals and the server ignores
     * SIGPIPE. */
    for (int n = 1; n < NSIG; n++)
        signal(n, SIG_DFL);
    setsid(); /* Ctrl-C in the server's terminal must not reach the jobs */
    /* Restores the original limit of open files, because programs that use select() fail with a
     * higher limit. */
    if (c->files_max && getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > c->files_max) {
        files.rlim_cur = (rlim_t)c->files_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    int out = c->out_fd < 0 ? open_null(STDOUT_FILENO, O_WRONLY) : dup2(c->out_fd, STDOUT_FILENO);
    if (open_null(STDIN_FILENO, O_RDONLY) < 0 || out < 0 || dup2(c->err_fd, STDERR_FILENO) < 0 ||
        (c->lock_fd >= 0 && dup2(c->lock_fd, CHILD_LOCK_FD) < 0) || chdir(c->cwd) < 0)
        return -errno;
    pthread_sigmask(SIG_SETMASK, mask, NULL);
    execve(c->program, c->argv, c->env);
    return -errno;
}

int child_fd_move_up(int fd)
{
    if (fd < 0 || fd > CHILD_LOCK_FD)
        return fd;
    int up = fcntl(fd, F_DUPFD_CLOEXEC, CHILD_LOCK_FD + 1);
    int r = up < 0 ? -errno : up;
    close(fd);
    return r;
}

int child_process_start(const struct loop *loop, const struct child_setup *setup, pid_t *ret)
{
    int result[2], r = 0; /* a close-on-exec pipe reports a failed exec */
    sigset_t all, own, mask;
    if (pipe2(result, O_CLOEXEC) < 0)
        return -errno;
    result[1] = child_fd_move_up(result[1]);
    if (result[1] < 0) {
        close(result[0]);
        return result[1];
    }
    loop_original_mask(loop, &mask);
    sigfillset(&all);
    /* all signals are blocked, because our handlers must not run in the child */
    pthread_sigmask(SIG_SETMASK, &all, &own);
    pid_t pid = fork();
    if (pid == 0) {
        r = exec_child(setup, &mask);
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

int child_pipe(int *ret_read, int *ret_write)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    int theirs = child_fd_move_up(ends[1]);
    if (theirs < 0) {
        close(ends[0]);
        return theirs;
    }
    fcntl(theirs, F_SETFL, 0); /* the child expects its pipe to be blocking */
    *ret_read = ends[0];
    *ret_write = theirs;
    return 0;
}
