/* The client in the foreground and the job's streams: output to the client and log.txt, keys and
 * signals back. */
#include "engine/job.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "engine/spawn.h"
#include "trace/logs.h"
#include "trace/sink.h"

enum {
    CLIENT_BACKLOG = 256 << 10, /* unread output before the job has to wait */
    LOG_BACKLOG = 4 << 20,      /* unwritten log before it is dropped ... */
    LOG_HIGH = 2 << 20,         /* ... before the job has to wait for the disk ... */
    LOG_LOW = 1 << 20,          /* ... until this is left, ... */
    LOG_WAIT_MS = 1000,         /* ... but not longer than this: a disk may hang for ever */
    LOG_LOOK_MS = 5,
    WAKE_MS = 50, /* between two tries to wake the client */
};

/* ---- speaking to the client ---- */

static void client_want(struct job *j)
{
    if (j->client_source)
        loop_change_fd(j->client_source, EPOLLIN | (j->client.out.len ? EPOLLOUT : 0u));
}

/* What we wait for on a stream: output unless the client is behind, room where input waits. */
static void stream_want(struct job_stream *st)
{
    struct job *j = st->j;
    bool writes = st == &j->streams[0] && j->input.len;
    if (st->source)
        loop_change_fd(st->source, (j->paused ? 0u : EPOLLIN) | (writes ? EPOLLOUT : 0u));
}

static void streams_pause(struct job *j)
{
    bool pause = j->client_behind || j->log_behind;
    if (j->paused == pause)
        return;
    j->paused = pause;
    for (size_t i = 0; i < 3; i++)
        stream_want(&j->streams[i]);
}

static void client_lost(struct job *j)
{
    loop_remove(j->client_source);
    j->client_source = NULL;
    channel_fini(&j->client);
    j->client_gone = true;
    j->client_behind = false;
    streams_pause(j);
    if (j->now.ending == RUNNING && !j->options->guard.keep_on_exit && !j->options->is_detached) {
        j->now.ended_by = "the death of ebb run";
        job_begin_ending(j, TERMINATING);
    }
}

void job_client_flush(struct job *j)
{
    if (j->client_gone)
        return;
    if (channel_flush(&j->client) < 0) {
        client_lost(j);
        return;
    }
    j->client_behind = j->client.out.len > CLIENT_BACKLOG;
    streams_pause(j);
    client_want(j);
}

void job_client_leave(struct job *j)
{
    channel_queue(&j->client, CHANNEL_STARTED, "", 0);
    job_client_flush(j);
    if (!j->client_gone) /* the socket's own buffer has room for more than was said so far */
        client_lost(j);
}

void job_say(void *user, const char *sentence)
{
    struct job *j = user;
    channel_queue(&j->client, CHANNEL_SAY, sentence, strlen(sentence));
    job_client_flush(j);
}

void job_sayf(struct job *j, const char *fmt, ...)
{
    char sentence[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    job_say(j, sentence);
}

/* ---- a client that stopped with the job ---- */

bool job_client_sleeps(const struct job *j)
{
    return j->client_stopped && !j->client_gone && j->client_pidfd >= 0;
}

void job_client_wake(struct job *j)
{
    if (job_client_sleeps(j))
        loop_set_timer(j->wake_timer, clock_mono_ns(), WAKE_MS * NS_PER_MS);
}

/* Again and again until it says that it goes on: it may be about to stop only now. */
static void on_wake(void *user, uint64_t now_ns, uint64_t missed)
{
    struct job *j = user;
    (void)now_ns;
    (void)missed;
    if (job_client_sleeps(j))
        syscall(SYS_pidfd_send_signal, j->client_pidfd, SIGCONT, NULL, 0);
    else
        loop_disarm_timer(j->wake_timer);
}

/* ---- the job's output ---- */

static void on_log_wait(void *user, uint64_t now_ns, uint64_t missed)
{
    struct job *j = user;
    struct sink_status status;
    (void)missed;
    logs_status(j->log, &status);
    bool is_low = status.waiting_bytes <= LOG_LOW;
    if (is_low || now_ns - j->log_wait_ns >= LOG_WAIT_MS * NS_PER_MS)
        j->log_behind = false;
    j->log_stuck = !is_low && !j->log_behind;
    if (is_low)
        loop_disarm_timer(j->log_timer);
    streams_pause(j);
}

static void log_wait(struct job *j)
{
    struct sink_status status;
    logs_status(j->log, &status);
    if (status.waiting_bytes <= LOG_HIGH || j->log_behind || j->log_stuck)
        return;
    j->log_behind = true;
    j->log_wait_ns = clock_mono_ns();
    loop_set_timer(j->log_timer, j->log_wait_ns + LOG_LOOK_MS * NS_PER_MS, LOG_LOOK_MS * NS_PER_MS);
    streams_pause(j);
}

static void log_add(struct job *j, const char *data, size_t len)
{
    if (!j->log)
        return;
    if (logs_add(j->log, data, len) == 0) {
        snprintf(j->note->log_name, sizeof j->note->log_name, "%s", logs_piece_name(j->log));
        job_control_log(j);
        log_wait(j);
        return;
    }
    if (!j->said_log)
        job_say(j, "log.txt cannot be written as fast as the job writes: some of it is missing");
    j->said_log = true;
}

static void on_log_trouble(void *user, int fd, uint32_t events)
{
    struct job *j = user;
    struct sink_status status;
    uint64_t count;
    (void)events;
    (void)!read(fd, &count, sizeof count);
    logs_status(j->log, &status);
    if (!j->said_log)
        job_sayf(j, "cannot write log.txt: %s; the job goes on, and its output still comes here",
                 strerror(-status.first_error));
    j->said_log = true;
}

static void stream_close(struct job_stream *st)
{
    loop_remove(st->source);
    st->source = NULL;
    if (st->fd >= 0)
        close(st->fd);
    st->fd = -1;
}

/* The job has let go of its terminal, but may open it again as /dev/tty: closing our side would
 * hang it up for good. */
static void terminal_let_go(struct job_stream *st)
{
    loop_remove(st->source);
    st->source = NULL;
}

static void input_write(struct job *j);

static void on_output(void *user, int fd, uint32_t events)
{
    struct job_stream *st = user;
    struct job *j = st->j;
    char data[32768];
    if (events & EPOLLOUT)
        input_write(j);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)))
        return;
    ssize_t n = read(fd, data, sizeof data);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* 0, or EIO of a terminal that nobody has open any more */
        if (st == &j->streams[0] && !j->now.exited)
            terminal_let_go(st);
        else
            stream_close(st);
        return;
    }
    const struct supervisor_tty *tty = &j->options->tty;
    if (st != &j->streams[0] || tty->out || tty->err) /* else it is but the echo of what is typed */
        log_add(j, data, (size_t)n);
    death_tail_add(&j->guard.tail, data, (size_t)n);
    channel_queue(&j->client, st->type, data, (size_t)n);
    job_client_flush(j);
}

void job_log_start(struct job *j)
{
    if (logs_open(j->options->rundir.fd, j->options->log_max_bytes, LOG_BACKLOG, &j->log) < 0)
        return;
    snprintf(j->note->log_name, sizeof j->note->log_name, "%s", logs_piece_name(j->log));
    loop_add_fd(j->loop, logs_error_fd(j->log), EPOLLIN, on_log_trouble, j, &j->log_source);
    loop_add_timer(j->loop, UINT64_MAX / 2, 0, on_log_wait, j, &j->log_timer);
}

void job_terminal_look(struct job *j)
{
    struct job_stream *st = &j->streams[0];
    struct pollfd p = {.fd = st->fd, .events = POLLIN};
    if (st->fd < 0 || st->source || (poll(&p, 1, 0) >= 0 && p.revents & POLLHUP))
        return;
    if (loop_add_fd(j->loop, st->fd, EPOLLIN, on_output, st, &st->source) == 0)
        stream_want(st);
}

int job_streams_start(struct job *j, const struct spawn_streams *streams)
{
    const int fds[] = {streams->terminal, streams->out, streams->err};
    const enum channel_type types[] = {CHANNEL_TERMINAL, CHANNEL_OUT, CHANNEL_ERR};
    for (size_t i = 0; i < 3; i++) {
        struct job_stream *st = &j->streams[i];
        *st = (struct job_stream){.j = j, .fd = fds[i], .type = types[i]};
        if (st->fd < 0)
            continue;
        int r = loop_add_fd(j->loop, st->fd, EPOLLIN, on_output, st, &st->source);
        if (r < 0)
            return r;
    }
    return 0;
}

bool job_streams_open(const struct job *j)
{
    return j->streams[0].source || j->streams[1].source || j->streams[2].source;
}

void job_streams_close(struct job *j)
{
    for (size_t i = 0; i < 3; i++)
        stream_close(&j->streams[i]);
}

/* ---- what the client sends ---- */

/* The client counts what is under way and sends no more than a little at a time, so its frames can
 * always be read: signals come by the same way. */
static void input_write(struct job *j)
{
    int fd = j->streams[0].fd;
    size_t taken = 0;
    while (fd >= 0 && taken < j->input.len) {
        ssize_t n = write(fd, j->input.data + taken, j->input.len - taken);
        if (n <= 0)
            break; /* full: we are told when there is room */
        taken += (size_t)n;
    }
    if (fd < 0)
        taken = j->input.len;
    if (taken == 0)
        return;
    memmove(j->input.data, j->input.data + taken, j->input.len - taken);
    j->input.len -= taken;
    uint8_t count[] = {(uint8_t)taken, (uint8_t)(taken >> 8), (uint8_t)(taken >> 16),
                       (uint8_t)(taken >> 24)};
    channel_queue(&j->client, CHANNEL_TAKEN, count, sizeof count);
    job_client_flush(j);
}

static void on_frame(struct job *j, enum channel_type type, const char *data, size_t len)
{
    if (type == CHANNEL_INPUT) {
        job_keys(j, data, len);
        buf_add(&j->input, data, len);
        input_write(j);
        stream_want(&j->streams[0]);
    } else if (type == CHANNEL_SIZE && len == sizeof(struct winsize) && j->streams[0].fd >= 0) {
        struct winsize size;
        memcpy(&size, data, sizeof size);
        ioctl(j->streams[0].fd, TIOCSWINSZ, &size);
    } else if (type == CHANNEL_SIGNAL && len == 1) {
        if (data[0] == SIGCONT)
            j->client_stopped = false;
        job_signal(j, data[0]);
    } else if (type == CHANNEL_CLOSED && len == 1 && !j->options->guard.keep_on_exit) {
        /* the job's next write fails, as it would by hand */
        stream_close(&j->streams[data[0] == CHANNEL_ERR ? 2 : 1]);
    }
}

static void on_client(void *user, int fd, uint32_t events)
{
    struct job *j = user;
    enum channel_type type;
    const char *data;
    size_t len;
    int r = 1;
    (void)fd;
    if (events & (EPOLLIN | EPOLLHUP | EPOLLERR)) {
        r = channel_fill(&j->client);
        while (!j->client_gone && channel_next(&j->client, &type, &data, &len) == 1)
            on_frame(j, type, data, len);
    }
    if (r < 0)
        client_lost(j);
    else
        job_client_flush(j);
}

int job_client_start(struct job *j)
{
    int r = loop_add_fd(j->loop, j->client.fd, EPOLLIN, on_client, j, &j->client_source);
    return r < 0 ? r : loop_add_timer(j->loop, UINT64_MAX / 2, 0, on_wake, j, &j->wake_timer);
}
