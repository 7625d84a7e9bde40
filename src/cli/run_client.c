/* One poll loop between the supervisor's channel and the user's terminal or pipes. Nothing in it
 * blocks for long: a reader that has gone for lunch must not keep a signal from the job. */
#include "cli/run_client.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "cli/cli.h"
#include "engine/channel.h"

enum {
    OUTPUT_BACKLOG = 64 << 10, /* shown before more is taken in */
    INPUT_BACKLOG = 16 << 10,  /* typed and not yet with the job, before more is read */
    WRITE_PIPE = 4096,         /* PIPE_BUF: after POLLOUT so much does not block */
    WRITE_TTY = 512,
    BACKGROUND_MS = 1000, /* how often a background client looks whether it still is one */
};

/* One of our own output streams, and what waits for it. */
struct outlet {
    int fd;
    enum channel_type type;
    const char *name;
    bool is_tty, gone, said;
    struct buf wait;
};

struct client {
    struct channel channel;
    const struct supervisor_tty *tty;
    struct run_client_end *end;
    bool raw;              /* the terminal is in raw mode */
    struct termios before; /* as it was when it was made so */
    bool keys_ended;       /* nothing more will be typed */
    size_t under_way;      /* input sent and not yet taken */
    int signals;           /* signalfd */
    struct outlet out, err, terminal;
    bool started; /* a detached job */
    bool ended;
};

/* ---- the terminal ---- */

void run_client_terminal(bool none, struct supervisor_tty *ret)
{
    *ret = (struct supervisor_tty){
        .in = isatty(STDIN_FILENO), .out = isatty(STDOUT_FILENO), .err = isatty(STDERR_FILENO)};
    int fd = ret->in ? STDIN_FILENO : ret->out ? STDOUT_FILENO : STDERR_FILENO;
    if (none || !(ret->in || ret->out) || tcgetattr(fd, &ret->termios) < 0) {
        *ret = (struct supervisor_tty){0};
        return;
    }
    ioctl(fd, TIOCGWINSZ, &ret->size);
    if (!ret->in) /* then ours stays as it is, and does to the output what it should */
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

/* Keys go to the job's terminal as they are; that one does the echo and makes signals of them.
 * Where the output is not on the terminal other programs may write there: it still does their line
 * ends. A terminal that is raw already is left so at the end as well: another `ebb run` made it
 * raw, and puts it back. */
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
    /* A background process that sets the terminal is stopped by SIGTTOU: it is blocked. */
    if (is_raw(&c->before) || tcsetattr(STDIN_FILENO, TCSADRAIN, &t) == 0)
        c->raw = raw;
}

/* ---- showing ---- */

static void outlet_init(struct outlet *o, int fd, enum channel_type type, const char *name)
{
    *o = (struct outlet){.fd = fd, .type = type, .name = name, .is_tty = isatty(fd)};
}

/* A reader that has left is told to the job as it would be by hand; any other trouble costs what
 * could not be written, and is said once. */
static void outlet_failed(struct client *c, struct outlet *o, int error)
{
    buf_clear(&o->wait);
    if (error == EPIPE || error == EIO) {
        const char type = (char)o->type;
        o->gone = true;
        if (o->type != CHANNEL_TERMINAL)
            channel_queue(&c->channel, CHANNEL_CLOSED, &type, 1);
    } else if (!o->said) {
        o->said = true;
        cli_say("cannot write to %s: %s; the job goes on", o->name, strerror(error));
    }
}

static void outlet_write(struct client *c, struct outlet *o)
{
    size_t most = o->is_tty ? WRITE_TTY : WRITE_PIPE;
    size_t len = o->wait.len < most ? o->wait.len : most;
    if (len == 0)
        return;
    ssize_t n = write(o->fd, o->wait.data, len);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        outlet_failed(c, o, errno);
        return;
    }
    memmove(o->wait.data, o->wait.data + n, o->wait.len - (size_t)n);
    o->wait.len -= (size_t)n;
}

static void outlet_add(struct outlet *o, const char *data, size_t len)
{
    if (!o->gone)
        buf_add(&o->wait, data, len);
}

static size_t waiting(const struct client *c)
{
    return c->out.wait.len + c->err.wait.len + c->terminal.wait.len;
}

static void say(struct client *c, const char *text, size_t len)
{
    bool raw = c->raw;
    terminal_raw(c, false);
    cli_say("%.*s", (int)len, text);
    terminal_raw(c, raw);
}

/* ---- stopping and going on ---- */

static void send_signal(struct client *c, int signo)
{
    const char number = (char)signo;
    channel_queue(&c->channel, CHANNEL_SIGNAL, &number, 1);
}

/* The job was stopped by Ctrl-Z: so are we, and when the shell brings us back, it goes on. */
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
    else if (type == CHANNEL_SAY)
        say(c, data, len);
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

/* ---- what the user does ---- */

static void take_signal(struct client *c)
{
    struct signalfd_siginfo info;
    struct winsize size;
    if (read(c->signals, &info, sizeof info) != (ssize_t)sizeof info)
        return;
    if (info.ssi_signo == SIGCONT) {
        terminal_raw(c, true); /* perhaps in the foreground again */
    } else if (info.ssi_signo == SIGWINCH) {
        int fd = c->tty->in ? STDIN_FILENO : STDOUT_FILENO;
        if ((c->tty->in || c->tty->out) && ioctl(fd, TIOCGWINSZ, &size) == 0)
            channel_queue(&c->channel, CHANNEL_SIZE, &size, sizeof size);
    } else if (c->ended) { /* there is only a slow reader left to wait for: no more */
        buf_clear(&c->out.wait);
        buf_clear(&c->err.wait);
        buf_clear(&c->terminal.wait);
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
        c->keys_ended = true; /* in the background EIO means: not now */
    }
}

/* ---- the loop ---- */

static struct pollfd outlet_poll(const struct outlet *o)
{
    return (struct pollfd){.fd = o->wait.len ? o->fd : -1, .events = POLLOUT};
}

static void turn(struct client *c)
{
    bool wants_keys = c->raw && !c->keys_ended && c->under_way < INPUT_BACKLOG;
    short channel_events = 0;
    if (!c->ended && waiting(c) < OUTPUT_BACKLOG)
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
        outlet_write(c, &c->out);
    if (fds[4].revents)
        outlet_write(c, &c->err);
    if (fds[5].revents)
        outlet_write(c, &c->terminal);
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
    return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

bool run_client_until_started(int fd, struct run_client_end *ret)
{
    static const struct supervisor_tty no_tty;
    struct client c = {.tty = &no_tty, .end = ret};
    *ret = (struct run_client_end){0};
    channel_init(&c.channel, fd);
    while (!c.ended && !c.started) {
        struct pollfd p = {.fd = c.channel.fd, .events = POLLIN};
        if (poll(&p, 1, -1) > 0)
            take_frames(&c);
    }
    buf_fini(&c.out.wait);
    buf_fini(&c.err.wait);
    channel_fini(&c.channel);
    return c.started;
}

void run_client(int fd, const struct supervisor_tty *tty, struct run_client_end *ret)
{
    struct client c = {.tty = tty, .end = ret};
    *ret = (struct run_client_end){0};
    channel_init(&c.channel, fd);
    outlet_init(&c.out, STDOUT_FILENO, CHANNEL_OUT, "standard output");
    outlet_init(&c.err, STDERR_FILENO, CHANNEL_ERR, "standard error");
    outlet_init(&c.terminal,
                tty->out   ? STDOUT_FILENO
                : tty->err ? STDERR_FILENO
                           : STDIN_FILENO,
                CHANNEL_TERMINAL, "the terminal");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    c.signals = catch_signals();
    terminal_raw(&c, true);
    while (!c.ended)
        turn(&c);
    while (waiting(&c)) /* the end has come; what was written before it is still shown */
        turn(&c);
    terminal_raw(&c, false);
    buf_fini(&c.out.wait);
    buf_fini(&c.err.wait);
    buf_fini(&c.terminal.wait);
    channel_fini(&c.channel);
    if (c.signals >= 0)
        close(c.signals);
}
