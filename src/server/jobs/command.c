/* A child process with a pidfd, two pipes and a timer in the event loop. It is started with fork
 * and exec: posix_spawn can create a session only since glibc 2.26, and change the working folder
 * only since 2.29. */
#include "server/jobs/command.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/loop.h"
#include "base/text.h"

/* ---- fork and exec ---- */

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
static int exec_child(const struct command_setup *c, int out_fd, int err_fd, const sigset_t *mask)
{
    struct rlimit files;

    /* Restores default signal handling, because the loop blocks some signals and the server ignores
     * SIGPIPE. */
    for (int n = 1; n < NSIG; n++)
        signal(n, SIG_DFL);
    setsid(); /* Ctrl-C in the server's terminal must not reach the jobs */
    /* Restores the original limit on open files, because programs that use select() fail with a
     * higher limit. */
    if (c->files_max && getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur > c->files_max) {
        files.rlim_cur = (rlim_t)c->files_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    int out = out_fd < 0 ? open_null(STDOUT_FILENO, O_WRONLY) : dup2(out_fd, STDOUT_FILENO);
    if (open_null(STDIN_FILENO, O_RDONLY) < 0 || out < 0 || dup2(err_fd, STDERR_FILENO) < 0 ||
        (c->lock_fd >= 0 && dup2(c->lock_fd, COMMAND_LOCK_FD) < 0) ||
        chdir(c->cwd ? c->cwd : "/") < 0)
        return -errno;
    pthread_sigmask(SIG_SETMASK, mask, NULL);
    execve(c->program, c->argv, c->env);
    return -errno;
}

int command_fd_move_up(int fd)
{
    if (fd < 0 || fd > COMMAND_LOCK_FD)
        return fd;
    int up = fcntl(fd, F_DUPFD_CLOEXEC, COMMAND_LOCK_FD + 1);
    int r = up < 0 ? -errno : up;
    close(fd);
    return r;
}

/* Starts the child. OUT_FD and ERR_FD must be above COMMAND_LOCK_FD. Returns 0. If the child cannot
 * be started, returns -errno and leaves no process behind. */
static int fork_child(const struct loop *loop, const struct command_setup *setup, int out_fd,
                      int err_fd, pid_t *ret)
{
    int result[2], r = 0; /* a close-on-exec pipe reports a failed exec */
    sigset_t all, own, mask;
    if (pipe2(result, O_CLOEXEC) < 0)
        return -errno;
    result[1] = command_fd_move_up(result[1]);
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
        r = exec_child(setup, out_fd, err_fd, &mask);
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

/* Opens a pipe. The read end is non-blocking, the write end is for the child. */
static int child_pipe(int *ret_read, int *ret_write)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return -errno;
    int theirs = command_fd_move_up(ends[1]);
    if (theirs < 0) {
        close(ends[0]);
        return theirs;
    }
    fcntl(theirs, F_SETFL, 0); /* the child expects its pipe to be blocking */
    *ret_read = ends[0];
    *ret_write = theirs;
    return 0;
}

/* ---- the command ---- */

enum { ERROR_MAX = 8 << 10, PIPE_READS = 16, REAP_MS = 1000 };

struct command_pipe {
    struct command *command;
    int fd; /* -1: closed */
    struct loop_source *source;
    struct buf text;
    size_t max;
};

struct command {
    struct loop *loop;
    pid_t pid;
    int pidfd;
    struct loop_source *pid_source, *limit;
    struct command_pipe pipes[2]; /* standard output and standard error */
    int status;                   /* -ETIMEDOUT or -EFBIG while the command is being killed */
    command_done_fn *done;
    void *user;
};

static void pipe_close(struct command_pipe *p)
{
    loop_remove(p->source);
    p->source = NULL;
    close_fd(&p->fd);
}

static void command_free(struct command *c)
{
    for (int i = 0; i < 2; i++) {
        pipe_close(&c->pipes[i]);
        buf_fini(&c->pipes[i].text);
    }
    loop_remove(c->pid_source);
    loop_remove(c->limit);
    close_fd(&c->pidfd);
    free(c);
}

static void command_stop(struct command *c, int status)
{
    if (c->status == 0)
        c->status = status;
    /* the command's process group, which exists until the command is reaped */
    kill(-c->pid, SIGKILL);
}

/* Reads at most as much as the pipe can hold, so that a command that keeps writing does not occupy
 * the loop. A command that writes too much to standard output is killed. Standard error is
 * truncated if it is too long. */
static void pipe_read(struct command_pipe *p)
{
    char space[4096];
    for (int i = 0; i < PIPE_READS && p->fd >= 0; i++) {
        ssize_t n = read(p->fd, space, sizeof space);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n <= 0) {
            pipe_close(p);
            return;
        }
        size_t room = p->max - p->text.len;
        buf_add(&p->text, space, (size_t)n < room ? (size_t)n : room);
        if ((size_t)n > room && p == &p->command->pipes[0])
            command_stop(p->command, -EFBIG);
    }
}

static void on_command_pipe(void *user, int fd, uint32_t events)
{
    (void)fd, (void)events;
    pipe_read(user);
}

static void on_command_limit(void *user, uint64_t now_ns)
{
    (void)now_ns;
    command_stop(user, -ETIMEDOUT);
}

/* Returns the last line of standard error, without a prefix such as "sbatch: error: ". Control
 * characters become spaces, because the line is shown to users. */
static void last_error_line(struct buf *text, char *ret, size_t size)
{
    while (text->len > 0 && strchr("\r\n ", text->data[text->len - 1]))
        text->len--;
    buf_add_byte(text, '\0');
    char *line = text->failed ? NULL : strrchr(text->data, '\n');
    line = line ? line + 1 : text->failed ? NULL : text->data;
    for (const char *colon; line && (colon = strstr(line, ": "));) {
        size_t len = (size_t)(colon - line);
        bool is_name = len < 16 && strspn(line, "abcdefghijklmnopqrstuvwxyz") == len;
        if (!is_name)
            break;
        line += len + 2;
    }
    for (char *s = line; s && *s; s++)
        *s = (unsigned char)*s < ' ' || *s == 0x7f ? ' ' : *s;
    text_copy(ret, size, line ? line : "");
}

static void on_command_exit(void *user, int fd, uint32_t events)
{
    struct command *c = user;
    siginfo_t info = {.si_code = CLD_KILLED};
    char error[512];
    (void)fd, (void)events;
    if (waitid(P_PID, (id_t)c->pid, &info, WEXITED | WNOHANG) == 0 && info.si_pid == 0)
        return;
    int status = info.si_code == CLD_EXITED ? info.si_status : 128 + info.si_status;
    for (int i = 0; i < 2; i++)
        pipe_read(&c->pipes[i]);
    last_error_line(&c->pipes[1].text, error, sizeof error);
    const struct buf *out = &c->pipes[0].text;
    if (out->failed && !c->status)
        c->status = -ENOMEM;
    c->done(c->user, c->status ? c->status : status, out->data ? out->data : "", out->len, error);
    command_free(c);
}

static int pipe_open(struct command *c, int i, int *ret_theirs)
{
    struct command_pipe *p = &c->pipes[i];
    int r = child_pipe(&p->fd, ret_theirs);
    if (r == 0)
        r = loop_add_fd(c->loop, p->fd, EPOLLIN, on_command_pipe, p, &p->source);
    return r;
}

static int start_child(struct command *c, const struct command_setup *setup)
{
    AUTO_CLOSE int err_fd = -1, out_fd = -1;
    int r = setup->output_max ? pipe_open(c, 0, &out_fd) : 0;
    if (r == 0)
        r = pipe_open(c, 1, &err_fd);
    if (r == 0)
        r = fork_child(c->loop, setup, setup->output_max ? out_fd : setup->out_fd, err_fd, &c->pid);
    if (r == 0 && setup->nice)
        setpriority(PRIO_PROCESS, (id_t)c->pid, setup->nice);
    return r;
}

/* Watches the child. If that is not possible, the child is killed and reaped. */
static int watch_child(struct command *c, uint64_t limit_ns)
{
    c->pidfd = io_pidfd_open(c->pid);
    int r = c->pidfd < 0 ? c->pidfd : 0;
    if (r == 0)
        r = loop_add_fd(c->loop, c->pidfd, EPOLLIN, on_command_exit, c, &c->pid_source);
    if (r == 0 && limit_ns)
        r = loop_add_timer(c->loop, clock_mono_ns() + limit_ns, 0, on_command_limit, c, &c->limit);
    if (r < 0) {
        kill(-c->pid, SIGKILL);
        waitpid(c->pid, NULL, 0);
    }
    return r;
}

int command_start(struct loop *loop, const struct command_setup *setup, command_done_fn *fn,
                  void *user, struct command **ret)
{
    struct command *c = calloc(1, sizeof *c);
    if (!c)
        return -ENOMEM;
    *c = (struct command){.loop = loop, .pidfd = -1, .done = fn, .user = user};
    c->pipes[0] = (struct command_pipe){.command = c, .fd = -1, .max = setup->output_max};
    c->pipes[1] = (struct command_pipe){.command = c, .fd = -1, .max = ERROR_MAX};
    int r = start_child(c, setup);
    if (r == 0)
        r = watch_child(c, setup->limit_ns);
    if (r < 0) {
        command_free(c);
        return r;
    }
    *ret = c;
    return 0;
}

void command_release(struct command *c, bool is_killed)
{
    if (!c)
        return;
    if (is_killed) {
        struct pollfd p = {.fd = c->pidfd, .events = POLLIN};
        kill(-c->pid, SIGKILL);
        poll(&p, 1, REAP_MS); /* a hanging disk can keep the killed command from exiting */
        waitpid(c->pid, NULL, WNOHANG);
    }
    command_free(c);
}

int command_find(const char *name, char *ret, size_t size)
{
    const char *path = getenv("PATH");
    for (const char *p = path && *path ? path : "/usr/local/bin:/usr/bin:/bin"; *p;) {
        size_t len = strcspn(p, ":");
        int n = snprintf(ret, size, "%.*s/%s", (int)len, p, name);
        if (n < 0 || (size_t)n >= size)
            return -ENAMETOOLONG;
        if (len > 0 && access(ret, X_OK) == 0)
            return 0;
        p += len + (p[len] == ':');
    }
    return -ENOENT;
}
