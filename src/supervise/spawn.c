/* Starts the job: fork, process group, streams, exec. */
#include "supervise/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/cleanup.h"

/* the stand-in process closes this many fds, which is more than the supervisor can have open */
enum { HOLDER_FILES = 8192 };

/* Both ends of the job's terminal and pipes, created before the fork. */
struct ends {
    int terminal[2]; /* master, slave */
    int out[2], err[2], failure[2];
};

static const struct ends no_ends = {{-1, -1}, {-1, -1}, {-1, -1}, {-1, -1}};

static void close_pair(int pair[2])
{
    for (int i = 0; i < 2; i++)
        if (pair[i] >= 0)
            close(pair[i]);
    pair[0] = pair[1] = -1;
}

static void close_ends(struct ends *e)
{
    close_pair(e->terminal);
    close_pair(e->out);
    close_pair(e->err);
    close_pair(e->failure);
}

/* Replaces openpty, which is in a separate library in old versions of glibc. */
static int open_terminal(const struct supervisor_tty *tty, int pair[2])
{
    char path[64];
    pair[0] = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (pair[0] < 0 || grantpt(pair[0]) < 0 || unlockpt(pair[0]) < 0)
        return -errno;
    int r = ptsname_r(pair[0], path, sizeof path);
    if (r != 0)
        return -r;
    pair[1] = open(path, O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (pair[1] < 0 || tcsetattr(pair[1], TCSANOW, &tty->termios) < 0 ||
        ioctl(pair[1], TIOCSWINSZ, &tty->size) < 0)
        return -errno;
    /* TIOCSCTTY makes the pseudo-terminal the controlling terminal of this session. The supervisor
     * leads the session, but never reads from the terminal. */
    return ioctl(pair[1], TIOCSCTTY, 0) < 0 ? -errno : 0;
}

static int open_ends(const struct supervisor_options *o, struct ends *e)
{
    const struct supervisor_tty *tty = &o->tty;
    const struct supervisor_streams *s = &o->streams;
    bool needs_out = !tty->out && !s->closed[STDOUT_FILENO];
    bool needs_err = !tty->err && !s->closed[STDERR_FILENO] && !s->is_one_pipe;
    *e = no_ends;
    if (pipe2(e->failure, O_CLOEXEC) < 0 || (needs_out && pipe2(e->out, O_CLOEXEC) < 0) ||
        (needs_err && pipe2(e->err, O_CLOEXEC) < 0))
        return -errno;
    return tty->in || tty->out || tty->err ? open_terminal(tty, e->terminal) : 0;
}

/* ---- in the child: async-signal-safe calls only ---- */

/* Resets signals. Signals that were ignored when ebb started (nohup) stay ignored; signals that
 * only ebb ignores are reset. */
static void default_signals(const struct supervisor_options *o, const sigset_t *mask)
{
    struct sigaction sa = {.sa_handler = SIG_DFL};
    if (!o->ignores_pipe)
        sigaction(SIGPIPE, &sa, NULL);
    if (!o->ignores_xfsz)
        sigaction(SIGXFSZ, &sa, NULL);
    sigprocmask(SIG_SETMASK, mask, NULL);
}

/* Creates a new process group and moves it to the foreground of the terminal. The kernel stops a
 * background process that calls tcsetpgrp, so SIGTTOU stays blocked until default_signals is
 * called. */
static void take_foreground(const struct ends *e)
{
    sigset_t ttou;
    sigemptyset(&ttou);
    sigaddset(&ttou, SIGTTOU);
    sigprocmask(SIG_BLOCK, &ttou, NULL);
    setpgid(0, 0);
    if (e->terminal[1] >= 0)
        tcsetpgrp(e->terminal[1], getpid());
}

static void connect_streams(const struct supervisor_options *o, const struct ends *e)
{
    const struct supervisor_tty *tty = &o->tty;
    int err = o->streams.is_one_pipe ? e->out[1] : e->err[1];
    if (tty->in)
        dup2(e->terminal[1], STDIN_FILENO);
    dup2(tty->out ? e->terminal[1] : e->out[1], STDOUT_FILENO);
    dup2(tty->err ? e->terminal[1] : err, STDERR_FILENO);
    for (int fd = 0; fd < 3; fd++)
        if (o->streams.closed[fd])
            close(fd);
}

/* Executes the program. If it is a text file without "#!", runs it with the shell, as shells do.
 * Any other file that the kernel rejects is probably a program for another CPU architecture, so the
 * function fails. */
void spawn_exec(const char *path, char *const *argv, char *const *shell_argv)
{
    char head[128];
    execv(path, argv);
    if (errno != ENOEXEC)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, head, sizeof head);
    if (n > 0 && !memchr(head, 0, (size_t)n))
        execv(shell_argv[0], shell_argv);
    errno = ENOEXEC;
}

/* Raises our own oom_score_adj, which needs no privilege. */
static void be_first_for_oom(int adj)
{
    char text[8];
    size_t len = 0;
    if (adj >= 1000)
        text[len++] = '1';
    for (int unit = 100; unit; unit /= 10)
        text[len++] = (char)('0' + adj / unit % 10);
    int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    (void)!write(fd, text, len);
    close(fd);
}

static _Noreturn void child(const struct spawn_request *q, char *const *shell_argv,
                            const struct ends *e, bool is_in_cgroup)
{
    const struct supervisor_options *o = q->options;
    if (!is_in_cgroup)
        guard_cgroup_join(q->cgroup);
    be_first_for_oom(q->oom_score_adj);
    take_foreground(e);
    connect_streams(o, e);
    setrlimit(RLIMIT_NOFILE, &o->nofile);
    default_signals(o, q->mask);
    spawn_exec(o->path, q->argv, shell_argv);
    int error = errno;
    (void)!write(e->failure[1], &error, sizeof error);
    _exit(127);
}

/* ---- in the parent ---- */

/* Returns the error of exec, read from a pipe. A successful exec closes the pipe; if exec fails,
 * the child writes errno into it. */
static int exec_error_of(int fd)
{
    int error = 0;
    ssize_t n;
    do
        n = read(fd, &error, sizeof error);
    while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof error ? -error : 0;
}

static void keep_ours(struct ends *e, struct spawn_streams *ret)
{
    ret->terminal = e->terminal[0];
    ret->out = e->out[0];
    ret->err = e->err[0];
    e->terminal[0] = e->out[0] = e->err[0] = -1;
    int fds[] = {ret->terminal, ret->out, ret->err};
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        if (fds[i] >= 0)
            fcntl(fds[i], F_SETFL, fcntl(fds[i], F_GETFL) | O_NONBLOCK);
}

char **spawn_argv(char *const *argv, char *const *more)
{
    size_t own = 0, added = 0;
    while (argv[own])
        own++;
    while (more && more[added])
        added++;
    char **v = calloc(own + added + 1, sizeof *v);
    if (v)
        memcpy(v, argv, own * sizeof *v);
    if (v && added)
        memcpy(v + own, more, added * sizeof *v);
    return v;
}

char **spawn_shell_argv(const char *path, char *const *argv)
{
    static char shell[] = "/bin/sh";
    char *const head[] = {shell, (char *)(uintptr_t)path, NULL};
    return spawn_argv(head, argv[0] ? argv + 1 : argv);
}

int spawn_job(const struct spawn_request *request, struct spawned *ret, int *ret_exec_error)
{
    struct ends ends;
    AUTO_FREE char **shell_argv = spawn_shell_argv(request->options->path, request->argv);
    int r = open_ends(request->options, &ends);
    if (r < 0 || !shell_argv) {
        close_ends(&ends);
        return shell_argv ? r : -ENOMEM;
    }
    bool is_in_cgroup = false;
    /* A restarted job must not start in its cgroup: once cgroup.kill has been written, Linux 6.18
     * kills every process that starts in the cgroup. It does not kill a process that is moved
     * there. */
    pid_t pid = request->is_restart ? fork()
                                    : guard_cgroup_fork(request->options->engine.root,
                                                        request->cgroup, &is_in_cgroup);
    if (pid == 0)
        child(request, shell_argv, &ends, is_in_cgroup);
    if (pid < 0) {
        r = -errno;
        close_ends(&ends);
        return r;
    }
    /* setpgid is called in both parent and child, so that neither has to wait for the other */
    setpgid(pid, pid);
    close(ends.failure[1]);
    ends.failure[1] = -1;
    *ret_exec_error = exec_error_of(ends.failure[0]);
    if (*ret_exec_error)
        waitpid(pid, NULL, 0);
    else
        *ret = (struct spawned){.pid = pid};
    if (!*ret_exec_error)
        keep_ours(&ends, &ret->streams);
    close_ends(&ends);
    return 0;
}

int spawn_holder(struct spawned *ret)
{
    pid_t pid = fork();
    if (pid < 0)
        return -errno;
    if (pid == 0) {
        sigset_t all;
        sigfillset(&all);
        sigprocmask(SIG_SETMASK, &all, NULL);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        prctl(PR_SET_NAME, "ebb-node");
        /* closes all inherited fds, because other processes may wait for sockets among them to be
         * closed */
        for (int fd = 0, end = (int)sysconf(_SC_OPEN_MAX); fd < end && fd < HOLDER_FILES; fd++)
            close(fd);
        for (;;)
            pause();
    }
    *ret = (struct spawned){.pid = pid, .streams = {.terminal = -1, .out = -1, .err = -1}};
    return 0;
}
