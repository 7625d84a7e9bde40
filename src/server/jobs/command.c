/* A child process with a pidfd, two pipes and a timer in the event loop. */
#include "server/jobs/command.h"

#include <errno.h>
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
#include "base/clock.h"
#include "base/io.h"
#include "base/loop.h"
#include "base/text.h"
#include "server/jobs/child_process.h"

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
    if (p->fd >= 0)
        close(p->fd);
    p->fd = -1;
}

static void command_free(struct command *c)
{
    for (int i = 0; i < 2; i++) {
        pipe_close(&c->pipes[i]);
        buf_fini(&c->pipes[i].text);
    }
    loop_remove(c->pid_source);
    loop_remove(c->limit);
    if (c->pidfd >= 0)
        close(c->pidfd);
    free(c);
}

static void command_stop(struct command *c, int status)
{
    if (c->status == 0)
        c->status = status;
    kill(-c->pid, SIGKILL); /* the command's process group, which exists until it is reaped */
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

/* Returns the last line of standard error, without a prefix such as "sbatch: error: ". Bytes that
 * are not text are removed, because the line is shown to users. */
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
    int err_fd = -1, out_fd = -1;
    int r = setup->out_fd < 0 ? pipe_open(c, 0, &out_fd) : 0;
    if (r == 0)
        r = pipe_open(c, 1, &err_fd);
    if (r == 0) {
        const struct child_setup child = {.program = setup->program,
                                          .argv = setup->argv,
                                          .env = setup->env,
                                          .cwd = "/",
                                          .out_fd = setup->out_fd < 0 ? out_fd : setup->out_fd,
                                          .err_fd = err_fd,
                                          .lock_fd = setup->lock_fd};
        r = child_process_start(c->loop, &child, &c->pid);
    }
    if (r == 0 && setup->nice)
        setpriority(PRIO_PROCESS, (id_t)c->pid, setup->nice);
    if (out_fd >= 0)
        close(out_fd);
    if (err_fd >= 0)
        close(err_fd);
    return r;
}

/* Watches the child. If that is not possible, the child is killed and reaped. */
static int watch_child(struct command *c, uint64_t limit_ns)
{
    c->pidfd = io_pidfd_open(c->pid);
    int r = c->pidfd < 0 ? c->pidfd : 0;
    if (r == 0)
        r = loop_add_fd(c->loop, c->pidfd, EPOLLIN, on_command_exit, c, &c->pid_source);
    if (r == 0)
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
        poll(&p, 1, REAP_MS); /* a command that waits for a hanging disk may not end */
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
