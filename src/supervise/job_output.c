/* Copies the job's output from its pipes and its terminal to log.txt and the client. Keeps the end
 * of the output, which may explain a crash. */
#include "supervise/job.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"
#include "supervise/spawn.h"
#include "trace/logs.h"
#include "trace/sink.h"

enum {
    PIPE_BYTES = 64 << 10, /* initial capacity of a pipe */
    PIPE_LARGE = 1 << 20,  /* the largest pipe that Linux allows unprivileged users by default */
    TERMINAL_BYTES = 32 << 10,
    /* number of unwritten log bytes at which further output is not logged */
    LOG_BACKLOG = 4 << 20,
    /* number of unwritten log bytes at which the job is paused */
    LOG_HIGH = 2 << 20,
    LOG_LOW = 1 << 20, /* number of unwritten log bytes at which the job continues */
    /* the job is paused for a slow disk at most this long, because a disk may hang forever */
    LOG_WAIT_MS = 1000,
};

/* Sets the events that the loop waits for: output of the job (but not while the client or the log
 * is behind), and space for input (only while input is queued). Epoll is edge-triggered, so streams
 * are reported in the order in which the job wrote to them. A caller that leaves output unread must
 * call this function again. */
void job_stream_want(struct job_stream *st)
{
    struct job *j = st->j;
    bool writes = st == &j->output.streams[0] && j->client.input.len;
    bool reads = !j->output.is_paused && !st->is_full;
    if (st->source)
        loop_change_fd(st->source, EPOLLET | (reads ? EPOLLIN : 0u) | (writes ? EPOLLOUT : 0u));
}

void job_streams_pause(struct job *j)
{
    bool pause = j->client.is_behind || j->output.log_is_behind;
    if (j->output.is_paused == pause)
        return;
    j->output.is_paused = pause;
    for (size_t i = 0; i < JOB_STREAMS; i++)
        job_stream_want(&j->output.streams[i]);
}

/* ---- log.txt ---- */

static void on_log_stuck(void *user, uint64_t now_ns)
{
    struct job *j = user;
    (void)now_ns;
    j->output.log_is_behind = false;
    j->output.log_is_stuck = true;
    job_streams_pause(j);
}

static void log_wait(struct job *j)
{
    struct sink_status status;
    sink_status(logs_sink(j->output.log), &status);
    if (status.waiting_bytes <= LOG_HIGH || j->output.log_is_behind || j->output.log_is_stuck)
        return;
    j->output.log_is_behind = true;
    loop_set_timer(j->output.log_timer, clock_mono_ns() + LOG_WAIT_MS * NS_PER_MS, 0);
    sink_wake_below(logs_sink(j->output.log), LOG_LOW);
    job_streams_pause(j);
}

static void log_add(struct job *j, const char *data, size_t len)
{
    if (!j->output.log)
        return;
    if (logs_add(j->output.log, data, len) == 0) {
        snprintf(j->note->log_name, sizeof j->note->log_name, "%s", logs_piece_name(j->output.log));
        job_control_log(j);
        log_wait(j);
        return;
    }
    if (!j->output.log_trouble_is_reported)
        job_notify(j, "the job writes faster than the disk: part of log.txt is missing");
    j->output.log_trouble_is_reported = true;
}

static void on_log_event(void *user, int fd, uint32_t events)
{
    struct job *j = user;
    struct sink_status status;
    uint64_t count;
    (void)events;
    (void)!read(fd, &count, sizeof count);
    sink_status(logs_sink(j->output.log), &status);
    if (status.first_error && !j->output.log_trouble_is_reported) {
        job_notifyf(j, "cannot write log.txt: %s; the job continues, and its output is still shown",
                    strerror(-status.first_error));
        j->output.log_trouble_is_reported = true;
    }
    if (status.waiting_bytes <= LOG_LOW) {
        j->output.log_is_behind = j->output.log_is_stuck = false;
        loop_disarm_timer(j->output.log_timer);
        job_streams_pause(j);
    }
}

void job_log_start(struct job *j)
{
    if (logs_open(j->options->rundir.fd, j->options->log_max_bytes, LOG_BACKLOG, &j->output.log) <
        0)
        return;
    snprintf(j->note->log_name, sizeof j->note->log_name, "%s", logs_piece_name(j->output.log));
    loop_add_fd(j->loop, sink_event_fd(logs_sink(j->output.log)), EPOLLIN, on_log_event, j,
                &j->output.log_source);
    loop_add_timer(j->loop, UINT64_MAX / 2, 0, on_log_stuck, j, &j->output.log_timer);
}

/* ---- the pipes to the client ---- */

static void stop_waiting_for_room(struct job_stream *st)
{
    loop_remove(st->room_source);
    st->room_source = NULL;
    st->is_full = false;
    job_stream_want(st);
}

static void on_room(void *user, int fd, uint32_t events)
{
    (void)fd;
    (void)events;
    stop_waiting_for_room(user);
}

static void client_pipe_close(struct job_stream *st)
{
    stop_waiting_for_room(st);
    if (st->client_fd >= 0)
        close(st->client_fd);
    st->client_fd = -1;
}

void job_streams_leave_client(struct job_output *o)
{
    for (size_t i = 0; i < JOB_STREAMS; i++)
        client_pipe_close(&o->streams[i]);
}

/* ---- pipes ---- */

static void stream_close(struct job_stream *st)
{
    stop_waiting_for_room(st);
    loop_remove(st->source);
    st->source = NULL;
    if (st->fd >= 0)
        close(st->fd);
    st->fd = -1;
    st->is_large = false;
}

/* Called after the job has exited: sends the rest of the output over the channel, so that a slow
 * reader delays only the client and not the supervisor. */
static void send_rest_by_channel(struct job_stream *st)
{
    st->is_by_channel = true;
    client_pipe_close(st);
}

/* Called when the reader of the output has closed its end of the pipe. Closes the stream, so that
 * the job's next write fails, as it would without ebb. With --keep-on-exit the stream stays
 * open. */
static void reader_left(struct job_stream *st)
{
    client_pipe_close(st);
    if (!st->j->options->guard.keep_on_exit)
        stream_close(st);
}

/* Copies the content of the job's pipe into the client's pipe with tee(). Writes of up to PIPE_BUF
 * bytes stay together, so that lines are not interleaved. Returns how many bytes to read now. */
static size_t pass_on(struct job_stream *st)
{
    int left = 0;
    if (st->client_fd < 0)
        return PIPE_LARGE;
    ssize_t n = tee(st->fd, st->client_fd, PIPE_LARGE, SPLICE_F_NONBLOCK);
    if (n > 0)
        return (size_t)n;
    if (n < 0 && errno == EAGAIN) { /* the job's pipe is empty, or the client's pipe is full */
        if (ioctl(st->fd, FIONREAD, &left) < 0 || left == 0)
            return 0;
        if (st->j->now.ending != DRAINING) {
            st->is_full = loop_add_fd(st->j->loop, st->client_fd, EPOLLOUT, on_room, st,
                                      &st->room_source) == 0;
            return 0;
        }
        send_rest_by_channel(st);
    } else if (n < 0) {
        reader_left(st);
    }
    return st->fd < 0 ? 0 : PIPE_LARGE;
}

/* Enlarges the pipe of a job that writes much output, to save system calls. Pipes are small at
 * first, because the kernel limits the total capacity of a user's pipes. */
static void enlarge(struct job_stream *st)
{
    st->is_large = true;
    fcntl(st->fd, F_SETPIPE_SZ, PIPE_LARGE);
    if (st->client_fd >= 0)
        fcntl(st->client_fd, F_SETPIPE_SZ, PIPE_LARGE);
}

static void on_pipe(void *user, int fd, uint32_t events)
{
    static char data[PIPE_LARGE]; /* pages of this array that are never touched use no memory */
    struct job_stream *st = user;
    struct job *j = st->j;
    (void)events;
    /* a hang-up is reported even while the stream is paused */
    if (j->output.is_paused || st->is_full)
        return;
    size_t len = pass_on(st);
    ssize_t n = len ? read(fd, data, len) : -1;
    if (n == 0)
        stream_close(st);
    if (n <= 0) {
        job_stream_want(st);
        return;
    }
    log_add(j, data, (size_t)n);
    death_tail_add(&j->guard.tail, data, (size_t)n);
    if (st->is_by_channel) {
        bool is_err = st == &j->output.streams[STDERR_FILENO];
        channel_queue(&j->client.channel, is_err ? CHANNEL_ERR : CHANNEL_OUT, data, (size_t)n);
        job_client_flush(j);
    }
    if (n >= PIPE_BYTES && !st->is_large)
        enlarge(st);
    job_stream_want(st);
}

/* ---- the terminal ---- */

static void on_terminal(void *user, int fd, uint32_t events)
{
    struct job_stream *st = user;
    struct job *j = st->j;
    const struct supervisor_tty *tty = &j->options->tty;
    char data[TERMINAL_BYTES];
    if (events & EPOLLOUT)
        job_input_write(j);
    if (!(events & (EPOLLIN | EPOLLHUP | EPOLLERR)) || j->output.is_paused)
        return;
    ssize_t n = read(fd, data, sizeof data);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) { /* EIO: no process has the terminal open any more */
        /* the job may open its terminal again as /dev/tty, so the master side stays open: closing
         * it would hang up the terminal permanently */
        loop_remove(st->source);
        st->source = NULL;
        if (j->now.exited)
            stream_close(st);
        return;
    }
    /* if no output stream is on the terminal, the terminal shows only echoed input */
    if (tty->out || tty->err)
        log_add(j, data, (size_t)n);
    death_tail_add(&j->guard.tail, data, (size_t)n);
    channel_queue(&j->client.channel, CHANNEL_TERMINAL, data, (size_t)n);
    job_client_flush(j);
    job_stream_want(st);
}

void job_terminal_resume(struct job *j)
{
    struct job_stream *st = &j->output.streams[0];
    struct pollfd p = {.fd = st->fd, .events = POLLIN};
    if (st->fd < 0 || st->source || (poll(&p, 1, 0) >= 0 && p.revents & POLLHUP))
        return;
    if (loop_add_fd(j->loop, st->fd, EPOLLET | EPOLLIN, on_terminal, st, &st->source) == 0)
        job_stream_want(st);
}

/* ---- all streams ---- */

int job_streams_start(struct job *j, const struct spawn_streams *streams)
{
    const int fds[JOB_STREAMS] = {streams->terminal, streams->out, streams->err};
    int r = 0;
    for (size_t i = 0; i < JOB_STREAMS; i++)
        j->output.streams[i].fd = fds[i];
    for (size_t i = 0; i < JOB_STREAMS && r == 0; i++) {
        struct job_stream *st = &j->output.streams[i];
        if (st->fd >= 0)
            r = loop_add_fd(j->loop, st->fd, EPOLLET | EPOLLIN, i == 0 ? on_terminal : on_pipe, st,
                            &st->source);
        job_stream_want(st);
    }
    return r;
}

bool job_streams_open(const struct job_output *o)
{
    return o->streams[0].source || o->streams[1].source || o->streams[2].source;
}

void job_streams_drain(struct job *j)
{
    for (size_t i = 0; i < JOB_STREAMS; i++)
        stop_waiting_for_room(&j->output.streams[i]);
    job_client_flush(j);
}

void job_streams_close(struct job_output *o)
{
    for (size_t i = 0; i < JOB_STREAMS; i++)
        stream_close(&o->streams[i]);
}
