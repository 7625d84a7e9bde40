/* A poll loop between the supervisor's channel and the user's terminal or pipes. Nothing in the
 * loop blocks for long, because a slow reader of the output must not delay a signal to the job. */
#include "cli/run_client.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "cli/cli.h"
#include "supervise/channel.h"

enum {
    /* while this much output is waiting to be written, no more output is read */
    OUTPUT_BACKLOG = 64 << 10,
    /* while the job has not read this much input, no more input is read */
    INPUT_BACKLOG = 16 << 10,
    WRITE_OTHER = 4096, /* PIPE_BUF: a write of this size does not block after POLLOUT */
    WRITE_TTY = 512,
    PIPE_BYTES = 64 << 10, /* initial size of a pipe, in bytes */
    PIPE_LARGE = 1 << 20,  /* largest size of a pipe without privileges, in bytes */
    /* how often a background client checks whether it is in the foreground again */
    BACKGROUND_MS = 1000,
};

/* One of our own output streams, and the output that is waiting to be written to it. */
struct outlet {
    int fd;
    /* pipe with the job's output; -1 if there is no pipe, or after the end of the output */
    int from;
    const char *name;
    /* Used if FD is a pipe: the kernel moves the bytes from FROM into this pipe, and from this pipe
     * to FD. A direct splice from FROM to FD could keep FROM locked while it waits for FD, and the
     * supervisor could then not write to FROM. Both fds are -1 if read and write are used
     * instead. */
    int through[2];
    size_t held; /* bytes in THROUGH */
    bool is_large;
    size_t most; /* maximum size of a write, if read and write are used */
    bool gone, has_reported;
    struct buf wait;
    size_t wait_at; /* number of bytes of WAIT that are already written */
    /* output that arrived over the channel; it is written once the pipe FROM is closed */
    struct buf rest;
};

struct client {
    struct channel channel;
    const struct supervisor_tty *tty;
    struct run_client_end *end;
    pid_t sentinel;
    bool raw;
    struct termios before; /* settings of the terminal before raw mode */
    bool keys_ended;       /* true once all input was read */
    size_t under_way;      /* number of input bytes that were sent and not acknowledged */
    int signals;           /* signalfd */
    struct outlet out, err, terminal;
    bool started; /* true once the detached job has started */
    bool ended;
};

/* ---- properties of our own streams ---- */

/* Returns true if both fds are the same terminal. Their stat results are not compared, because
 * /dev/tty has a device number of its own. */
static bool is_same_terminal(int a, int b)
{
    unsigned of_a, of_b;
    return ioctl(a, TIOCGDEV, &of_a) == 0 && ioctl(b, TIOCGDEV, &of_b) == 0 && of_a == of_b;
}

/* Returns true if writes to both fds go to one place, such as a terminal or a pipe. A regular file
 * that was opened twice has two offsets; writes then go to two places, unless both fds have
 * O_APPEND. If the kernel refuses kcmp, as it may in a container, equal offsets are treated as one
 * place. */
static bool is_one_place(int a, int b)
{
    struct stat of_a, of_b;
    if (is_same_terminal(a, b))
        return true;
    if (fstat(a, &of_a) < 0 || fstat(b, &of_b) < 0 || of_a.st_dev != of_b.st_dev ||
        of_a.st_ino != of_b.st_ino)
        return false;
    if (!S_ISREG(of_a.st_mode) || (fcntl(a, F_GETFL) & fcntl(b, F_GETFL) & O_APPEND))
        return true;
    long order = syscall(SYS_kcmp, getpid(), getpid(), KCMP_FILE, (long)a, (long)b);
    return order == 0 || (order < 0 && lseek(a, 0, SEEK_CUR) == lseek(b, 0, SEEK_CUR));
}

void run_client_streams(const struct supervisor_tty *tty, struct supervisor_streams *ret)
{
    for (int fd = 0; fd < 3; fd++)
        ret->closed[fd] = cli_was_closed(fd);
    ret->is_one_pipe = !ret->closed[STDOUT_FILENO] && !ret->closed[STDERR_FILENO] && !tty->out &&
                       !tty->err && is_one_place(STDOUT_FILENO, STDERR_FILENO);
}

void run_client_terminal(bool none, struct supervisor_tty *ret)
{
    *ret = (struct supervisor_tty){
        .in = isatty(STDIN_FILENO), .out = isatty(STDOUT_FILENO), .err = isatty(STDERR_FILENO)};
    int fd = ret->in ? STDIN_FILENO : ret->out ? STDOUT_FILENO : STDERR_FILENO;
    ret->out = ret->out && is_same_terminal(fd, STDOUT_FILENO);
    ret->err = ret->err && is_same_terminal(fd, STDERR_FILENO);
    if (none || !(ret->in || ret->out) || tcgetattr(fd, &ret->termios) < 0) {
        *ret = (struct supervisor_tty){0};
        return;
    }
    ioctl(fd, TIOCGWINSZ, &ret->size);
    /* without raw mode, the user's terminal translates line ends, so the job's must not */
    if (!ret->in)
        ret->termios.c_oflag &= (tcflag_t)~OPOST;
}

static bool in_foreground(const struct client *c)
{
    return c->tty->in && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

static bool is_raw(const struct termios *t)
{
    return !(t->c_lflag & (ICANON | ECHO | ISIG));
}

/* Enters or leaves raw mode. In raw mode keys go unchanged to the job's terminal, which echoes them
 * and turns them into signals. If ebb's output does not go to the user's terminal, other programs
 * may write there, so the terminal still translates line ends. A terminal that was already raw
 * stays raw at the end, because an outer `ebb run` made it raw and will restore it. */
static void terminal_raw(struct client *c, bool raw)
{
    if (c->raw == raw || (raw && !in_foreground(c)))
        return;
    if (raw && tcgetattr(STDIN_FILENO, &c->before) < 0)
        return;
    struct termios t = c->before;
    if (raw) {
        tcflag_t output = t.c_oflag;
        cfmakeraw(&t);
        if (!c->tty->out)
            t.c_oflag = output;
    }
    /* SIGTTOU is blocked: it would stop a background process that changes the terminal */
    if (is_raw(&c->before) || tcsetattr(STDIN_FILENO, TCSADRAIN, &t) == 0)
        c->raw = raw;
}

/* ---- writing output ---- */

static void outlet_init(struct outlet *o, int fd, int from, const char *name)
{
    struct stat st = {0};
    bool is_tty = isatty(fd);
    bool may_block = fstat(fd, &st) < 0 || !(S_ISREG(st.st_mode) || S_ISCHR(st.st_mode));
    *o = (struct outlet){.fd = fd,
                         .from = from,
                         .name = name,
                         .through = {-1, -1},
                         .most = is_tty      ? WRITE_TTY
                                 : may_block ? WRITE_OTHER
                                             : OUTPUT_BACKLOG};
    if (from >= 0 && S_ISFIFO(st.st_mode) && pipe2(o->through, O_CLOEXEC) < 0)
        o->through[0] = o->through[1] = -1;
}

static void outlet_from_close(struct outlet *o)
{
    if (o->from >= 0)
        close(o->from);
    o->from = -1;
}

static void outlet_through_close(struct outlet *o)
{
    for (int i = 0; i < 2; i++) {
        if (o->through[i] >= 0)
            close(o->through[i]);
        o->through[i] = -1;
    }
    o->held = 0;
}

/* Discards all further output to O. */
static void outlet_drop(struct outlet *o)
{
    outlet_from_close(o);
    outlet_through_close(o);
    buf_fini(&o->wait);
    buf_fini(&o->rest);
    o->wait_at = 0;
    o->gone = true;
}

static bool outlet_waits(const struct outlet *o)
{
    int left = 0;
    if (o->from >= 0)
        ioctl(o->from, FIONREAD, &left);
    return o->wait.len || o->held || o->rest.len || left > 0;
}

/* Handles a write error. If the reader has closed its end, closes the job's output as well: the
 * job's writes then fail, as they do without ebb. After any other error the output is lost, and the
 * error is reported once. */
static void outlet_failed(struct outlet *o, int error)
{
    buf_clear(&o->wait);
    o->wait_at = 0;
    if (error == EPIPE || error == EIO) {
        /* the supervisor's next write to the pipe will fail, and after it the job's next write */
        outlet_drop(o);
    } else if (!o->has_reported) {
        o->has_reported = true;
        cli_say("cannot write to %s: %s; the job continues", o->name, strerror(error));
    }
}

static void outlet_write(struct outlet *o)
{
    size_t left = o->wait.len - o->wait_at;
    size_t len = left < o->most ? left : o->most;
    if (len == 0)
        return;
    ssize_t n = write(o->fd, o->wait.data + o->wait_at, len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        outlet_failed(o, errno);
        return;
    }
    o->wait_at += (size_t)n;
    if (o->wait_at == o->wait.len)
        o->wait_at = o->wait.len = 0;
}

static void outlet_splice(struct outlet *o)
{
    ssize_t n;
    if (!o->held) {
        n = splice(o->from, NULL, o->through[1], NULL, PIPE_LARGE, SPLICE_F_NONBLOCK);
        if (n == 0)
            outlet_from_close(o);
        if (n <= 0)
            return;
        o->held = (size_t)n;
        /* the job writes much output; the supervisor enlarges the pipe FROM for the same reason */
        if (n >= PIPE_BYTES && !o->is_large)
            o->is_large = fcntl(o->through[1], F_SETPIPE_SZ, PIPE_LARGE) >= 0;
    }
    n = splice(o->through[0], NULL, o->fd, NULL, o->held, SPLICE_F_NONBLOCK);
    if (n > 0)
        o->held -= (size_t)n;
    else if (n < 0 && errno != EAGAIN && errno != EINTR)
        outlet_failed(o, errno);
}

static void outlet_read(struct outlet *o)
{
    if (buf_reserve(&o->wait, OUTPUT_BACKLOG) < 0)
        return;
    ssize_t n = read(o->from, o->wait.data, OUTPUT_BACKLOG);
    if (n > 0)
        o->wait.len = (size_t)n;
    else if (n == 0)
        outlet_from_close(o);
}

static void outlet_add(struct outlet *o, const char *data, size_t len)
{
    if (!o->gone)
        buf_add(&o->rest, data, len);
}

/* Starts to write the output that arrived over the channel. */
static void outlet_begin_rest(struct outlet *o)
{
    if (o->from >= 0 || o->wait.len || o->held || !o->rest.len)
        return;
    struct buf empty = o->wait;
    o->wait = o->rest;
    o->rest = empty;
}

static bool is_waiting(const struct client *c)
{
    return outlet_waits(&c->out) || outlet_waits(&c->err) || outlet_waits(&c->terminal);
}

static void client_say(struct client *c, const char *text, size_t len)
{
    bool raw = c->raw;
    terminal_raw(c, false);
    cli_say("%.*s", (int)len, text);
    terminal_raw(c, raw);
}

/* ---- stopping and continuing ---- */

static void send_signal(struct client *c, int signo)
{
    const char number = (char)signo;
    channel_queue(&c->channel, CHANNEL_SIGNAL, &number, 1);
}

/* After Ctrl-Z has stopped the job, stops this process too. Once the shell continues this process,
 * continues the job. */
static void stop_with_job(struct client *c)
{
    terminal_raw(c, false);
    raise(SIGSTOP);
    terminal_raw(c, true);
    send_signal(c, SIGCONT);
}

/* ---- frames ---- */

static void take_frame(struct client *c, enum channel_type type, const char *data, size_t len)
{
    struct err err;
    if (type == CHANNEL_OUT)
        outlet_add(&c->out, data, len);
    else if (type == CHANNEL_ERR)
        outlet_add(&c->err, data, len);
    else if (type == CHANNEL_TERMINAL)
        outlet_add(&c->terminal, data, len);
    else if (type == CHANNEL_NOTICE)
        client_say(c, data, len);
    else if (type == CHANNEL_STOPPED)
        stop_with_job(c);
    else if (type == CHANNEL_STARTED)
        c->started = true;
    else if (type == CHANNEL_TAKEN && len == 4) {
        struct cur cur = cur_of(data, len);
        uint32_t taken = cur_u32le(&cur);
        c->under_way -= taken < c->under_way ? taken : c->under_way;
    } else if (type == CHANNEL_STATUS && len == 1) {
        c->end->status_known = true;
        c->end->status = (unsigned char)data[0];
    } else if (type == CHANNEL_END) {
        c->end->doc = json_parse(data, len, &err);
        c->ended = true;
    }
}

static void take_frames(struct client *c)
{
    enum channel_type type;
    const char *data;
    size_t len;
    int filled = channel_fill(&c->channel);
    int r = 0;
    while (!c->ended && (r = channel_next(&c->channel, &type, &data, &len)) == 1)
        take_frame(c, type, data, len);
    if (filled < 0 || r < 0)
        c->ended = true;
}

/* ---- signals and keys ---- */

/* Reaps orphans, which this process adopts if it is an init process. run_finish reaps the sentinel.
 */
static void reap_orphans(pid_t sentinel)
{
    siginfo_t info = {0};
    while (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid > 0 &&
           info.si_pid != sentinel) {
        waitpid(info.si_pid, NULL, WNOHANG);
        info.si_pid = 0;
    }
}

static void take_signal(struct client *c)
{
    struct signalfd_siginfo info;
    struct winsize size;
    if (read(c->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    if (info.ssi_signo == SIGCHLD) {
        reap_orphans(c->sentinel);
    } else if (info.ssi_signo == SIGCONT) {
        /* The shell may have put this process into the foreground. */
        terminal_raw(c, true);
    } else if (info.ssi_signo == SIGWINCH) {
        int fd = c->tty->in ? STDIN_FILENO : STDOUT_FILENO;
        if ((c->tty->in || c->tty->out) && ioctl(fd, TIOCGWINSZ, &size) == 0)
            channel_queue(&c->channel, CHANNEL_SIZE, &size, sizeof size);
    } else if (c->ended) {
        /* the job has ended, and the user does not want to wait for the slow reader of its output
         */
        outlet_drop(&c->out);
        outlet_drop(&c->err);
        outlet_drop(&c->terminal);
    } else {
        send_signal(c, (int)info.ssi_signo);
    }
}

static void take_keys(struct client *c)
{
    char keys[4096];
    ssize_t n = read(STDIN_FILENO, keys, sizeof keys);
    if (n > 0) {
        c->under_way += (size_t)n;
        channel_queue(&c->channel, CHANNEL_INPUT, keys, (size_t)n);
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR && in_foreground(c))) {
        /* EIO in the background is not the end: the process can read again in the foreground */
        c->keys_ended = true;
    }
}

/* ---- the loop ---- */

/* The events to wait for: space in FD if output is waiting, else new output. */
static struct pollfd outlet_poll(struct outlet *o)
{
    outlet_begin_rest(o);
    if (o->wait.len || o->held)
        return (struct pollfd){.fd = o->fd, .events = POLLOUT};
    return (struct pollfd){.fd = o->from, .events = POLLIN};
}

static void outlet_turn(struct outlet *o)
{
    if (o->wait.len)
        outlet_write(o);
    else if (o->through[0] >= 0)
        outlet_splice(o);
    else
        outlet_read(o);
}

static void client_turn(struct client *c)
{
    bool wants_keys = c->raw && !c->keys_ended && c->under_way < INPUT_BACKLOG;
    short channel_events = 0;
    if (!c->ended && c->terminal.wait.len + c->terminal.rest.len < 2 * OUTPUT_BACKLOG)
        channel_events |= POLLIN;
    if (!c->ended && c->channel.out.len)
        channel_events |= POLLOUT;
    struct pollfd fds[] = {
        {.fd = channel_events ? c->channel.fd : -1, .events = channel_events},
        {.fd = c->signals, .events = POLLIN},
        {.fd = wants_keys ? STDIN_FILENO : -1, .events = POLLIN},
        outlet_poll(&c->out),
        outlet_poll(&c->err),
        outlet_poll(&c->terminal),
    };
    bool is_background = c->tty->in && !c->raw;
    if (poll(fds, sizeof fds / sizeof *fds, is_background ? BACKGROUND_MS : -1) < 0)
        return;
    if (is_background)
        terminal_raw(c, true);
    if (fds[1].revents)
        take_signal(c);
    if (fds[2].revents)
        take_keys(c);
    if (fds[3].revents)
        outlet_turn(&c->out);
    if (fds[4].revents)
        outlet_turn(&c->err);
    if (fds[5].revents)
        outlet_turn(&c->terminal);
    if (fds[0].revents & (POLLIN | POLLHUP | POLLERR))
        take_frames(c);
    channel_flush(&c->channel);
}

static void signals_passed_on(sigset_t *ret)
{
    const int caught[] = {SIGINT,  SIGTERM, SIGHUP,  SIGQUIT, SIGUSR1,
                          SIGUSR2, SIGTSTP, SIGCONT, SIGWINCH};
    sigemptyset(ret);
    for (size_t i = 0; i < sizeof caught / sizeof *caught; i++)
        sigaddset(ret, caught[i]);
}

void run_client_hold_signals(sigset_t *ret_before)
{
    sigset_t block;
    signals_passed_on(&block);
    sigaddset(&block, SIGTTOU);
    sigaddset(&block, SIGTTIN);
    sigprocmask(SIG_BLOCK, &block, ret_before);
}

static int catch_signals(void)
{
    sigset_t set;
    signals_passed_on(&set);
    if (getpid() == 1) { /* the init process of a container must reap orphans */
        sigaddset(&set, SIGCHLD);
        sigprocmask(SIG_BLOCK, &set, NULL);
    }
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool run_client_until_started(int fd, struct run_client_end *ret)
{
    static const struct supervisor_tty no_tty;
    struct client c = {.tty = &no_tty, .end = ret, .terminal = {.from = -1, .through = {-1, -1}}};
    *ret = (struct run_client_end){0};
    channel_init(&c.channel, fd);
    while (!c.ended && !c.started) {
        struct pollfd p = {.fd = c.channel.fd, .events = POLLIN};
        if (poll(&p, 1, -1) > 0)
            take_frames(&c);
    }
    outlet_drop(&c.terminal);
    channel_fini(&c.channel);
    return c.started;
}

void run_client(const struct supervisor_client *s, const struct supervisor_tty *tty,
                struct run_client_end *ret)
{
    struct client c = {.tty = tty, .end = ret, .sentinel = s->sentinel};
    *ret = (struct run_client_end){0};
    channel_init(&c.channel, s->fd);
    outlet_init(&c.out, STDOUT_FILENO, s->stream[1], "standard output");
    outlet_init(&c.err, STDERR_FILENO, s->stream[2], "standard error");
    outlet_init(&c.terminal,
                tty->out   ? STDOUT_FILENO
                : tty->err ? STDERR_FILENO
                           : STDIN_FILENO,
                -1, "the terminal");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    c.signals = catch_signals();
    terminal_raw(&c, true);
    while (!c.ended)
        client_turn(&c);
    while (
        /* the end of the job was reported; earlier output is still being written */
        is_waiting(&c))
        client_turn(&c);
    terminal_raw(&c, false);
    outlet_drop(&c.out);
    outlet_drop(&c.err);
    outlet_drop(&c.terminal);
    channel_fini(&c.channel);
    if (c.signals >= 0)
        close(c.signals);
}
