/* Runs `ebb attach` for the live view of `ebb watch`. */
#include "cli/watch_attach.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/io.h"
#include "base/loop.h"

static void close_output(struct watch_attach *a)
{
    loop_remove(a->source);
    a->source = NULL;
    if (a->pid && a->fd >= 0)
        close(a->fd);
    a->fd = -1;
}

static void watch_attach_reap(struct watch_attach *a)
{
    close_output(a);
    while (a->pid && waitpid(a->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    a->pid = 0;
}

static void report_first_line(const struct watch_attach *a, size_t before)
{
    static const char start[] = "ebb: ";
    const char *end = memchr(a->text.data, '\n', a->text.len);
    char line[256];
    if (!end || memchr(a->text.data, '\n', before))
        return;
    const char *from = strncmp(a->text.data, start, sizeof start - 1) == 0
                           ? a->text.data + sizeof start - 1
                           : a->text.data;
    snprintf(line, sizeof line, "%.*s", (int)(end - from), from);
    a->fn(a->user, line);
}

static void on_attach_output(void *user, int fd, uint32_t events)
{
    struct watch_attach *a = user;
    char text[4096];
    (void)events;
    ssize_t n = read(fd, text, sizeof text);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return;
    if (n <= 0) {
        close_output(a);
        return;
    }
    size_t before = a->text.len;
    buf_add(&a->text, text, (size_t)n);
    if (!a->text.failed)
        report_first_line(a, before);
}

/* Executes ebb attach in a process group of its own, so that Ctrl-C on the terminal reaches only
 * ebb watch, which then interrupts ebb attach. */
static _Noreturn void exec_attach(const struct loop *loop, int output, int32_t pid, pid_t parent)
{
    char number[16];
    sigset_t mask;
    snprintf(number, sizeof number, "%d", (int)pid);
    setpgid(0, 0);
    int nothing = open("/dev/null", O_RDONLY | O_CLOEXEC);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    signal(SIGPIPE, SIG_DFL);
    loop_original_mask(loop, &mask);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    if (getppid() == parent && nothing >= 0 && dup2(nothing, STDIN_FILENO) >= 0 &&
        dup2(output, STDOUT_FILENO) >= 0 && dup2(output, STDERR_FILENO) >= 0)
        execl("/proc/self/exe", "ebb", "attach", number, (char *)NULL);
    _exit(127);
}

int watch_attach_start(struct watch_attach *a, struct loop *loop, int32_t pid, watch_attach_fn *fn,
                       void *user)
{
    int ends[2];
    if (a->pid && a->fd >= 0)
        return 0;
    watch_attach_reap(a); /* reaps an earlier ebb attach that has ended */
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -errno;
    const pid_t parent = getpid();
    pid_t child = fork();
    if (child == 0)
        exec_attach(loop, ends[1], pid, parent);
    int r = child < 0 ? -errno : 0;
    close(ends[1]);
    if (r < 0) {
        close(ends[0]);
        return r;
    }
    buf_clear(&a->text);
    a->loop = loop;
    a->pid = child;
    a->fd = ends[0];
    a->fn = fn;
    a->user = user;
    r = loop_add_fd(loop, a->fd, EPOLLIN, on_attach_output, a, &a->source);
    if (r < 0)
        watch_attach_end(a);
    return r;
}

void watch_attach_interrupt(const struct watch_attach *a)
{
    if (a->pid)
        kill(a->pid, SIGINT); /* the child is not reaped yet, so its pid cannot have been reused */
}

void watch_attach_end(struct watch_attach *a)
{
    a->is_ending = true;
    watch_attach_interrupt(a);
    while (a->pid && a->fd >= 0 && a->source && loop_once(a->loop, -1) >= 0)
        ;
    watch_attach_reap(a);
    (void)!io_write_all(STDERR_FILENO, buf_str(&a->text), a->text.len);
    buf_fini(&a->text);
    a->is_ending = false;
}
