/* The connection to the client of a foreground job: sends output and notices to the client, and
 * receives signals and the keys that the user types. */
#include "supervise/job.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/loop.h"

enum {
    CLIENT_BACKLOG = 256 << 10, /* the job is paused when the client has this many unread bytes */
    /* maximum number of unread bytes after the job has exited; about the capacity of the job's
     * pipes */
    LAST_BACKLOG = 4 << 20,
    WAKE_MS = 50, /* time between two attempts to wake the client */
};

static void client_lost(struct job *j)
{
    loop_remove(j->client.source);
    j->client.source = NULL;
    channel_fini(&j->client.channel);
    job_streams_leave_client(&j->output);
    j->client.is_gone = true;
    j->client.is_behind = false;
    job_streams_pause(j);
    if (j->now.ending == RUNNING && !j->options->guard.keep_on_exit && !j->options->is_detached) {
        job_set_cause(&j->now, CAUSE_CLIENT, "");
        job_begin_ending(j, TERMINATING);
    }
}

void job_client_flush(struct job *j)
{
    if (j->client.is_gone)
        return;
    if (channel_flush(&j->client.channel) < 0) {
        client_lost(j);
        return;
    }
    size_t most = j->now.ending == DRAINING ? LAST_BACKLOG : CLIENT_BACKLOG;
    j->client.is_behind = j->client.channel.out.len > most;
    job_streams_pause(j);
    if (j->client.source)
        loop_change_fd(j->client.source, EPOLLIN | (j->client.channel.out.len ? EPOLLOUT : 0u));
}

void job_client_leave(struct job *j)
{
    channel_queue(&j->client.channel, CHANNEL_STARTED, "", 0);
    job_client_flush(j);
    /* no frame is lost: the kernel delivers everything that is in the socket's buffer, even after
     * the socket is closed */
    if (!j->client.is_gone)
        client_lost(j);
}

void job_notify(void *user, const char *sentence)
{
    struct job *j = user;
    if (j->notice) {
        j->notice(j->notice_user, sentence);
        return;
    }
    if (j->ranks) {
        job_ranks_say(j, sentence);
        return;
    }
    channel_queue(&j->client.channel, CHANNEL_NOTICE, sentence, strlen(sentence));
    job_client_flush(j);
}

void job_notifyf(struct job *j, const char *fmt, ...)
{
    char sentence[600];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    job_notify(j, sentence);
}

/* ---- a stopped client ---- */

bool job_client_sleeps(const struct job_client *c)
{
    return c->is_stopped && !c->is_gone && c->pidfd >= 0;
}

void job_client_wake(struct job *j)
{
    if (job_client_sleeps(&j->client))
        loop_set_timer(j->client.wake_timer, clock_mono_ns(), WAKE_MS * NS_PER_MS);
}

/* Wakes the client, again and again until it reports that it is running. One attempt is not enough,
 * because the client may stop itself just after it. */
static void on_wake(void *user, uint64_t now_ns)
{
    struct job *j = user;
    (void)now_ns;
    if (job_client_sleeps(&j->client))
        syscall(SYS_pidfd_send_signal, j->client.pidfd, SIGCONT, NULL, 0);
    else
        loop_disarm_timer(j->client.wake_timer);
}

/* ---- frames from the client ---- */

/* Writes typed input to the job's terminal. The supervisor never stops reading the client's frames,
 * because these include signals; instead, the client limits its amount of unacknowledged input. */
void job_input_write(struct job *j)
{
    int fd = j->output.streams[0].fd;
    size_t taken = 0;
    while (fd >= 0 && taken < j->client.input.len) {
        ssize_t n = write(fd, j->client.input.data + taken, j->client.input.len - taken);
        if (n <= 0)
            /* the terminal's buffer is full; the loop calls this function again once there is
             * space */
            break;
        taken += (size_t)n;
    }
    if (fd < 0)
        taken = j->client.input.len;
    if (taken == 0)
        return;
    memmove(j->client.input.data, j->client.input.data + taken, j->client.input.len - taken);
    j->client.input.len -= taken;
    uint8_t count[] = {(uint8_t)taken, (uint8_t)(taken >> 8), (uint8_t)(taken >> 16),
                       (uint8_t)(taken >> 24)};
    channel_queue(&j->client.channel, CHANNEL_TAKEN, count, sizeof count);
    job_client_flush(j);
}

static void on_client_frame(struct job *j, enum channel_type type, const char *data, size_t len)
{
    if (type == CHANNEL_INPUT) {
        job_keys(j, data, len);
        buf_add(&j->client.input, data, len);
        job_input_write(j);
        job_stream_want(&j->output.streams[0]);
    } else if (type == CHANNEL_SIZE && len == sizeof(struct winsize) &&
               j->output.streams[0].fd >= 0) {
        struct winsize size;
        memcpy(&size, data, sizeof size);
        ioctl(j->output.streams[0].fd, TIOCSWINSZ, &size);
    } else if (type == CHANNEL_SIGNAL && len == 1) {
        if (data[0] == SIGCONT)
            j->client.is_stopped = false;
        job_signal(j, data[0]);
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
        r = channel_fill(&j->client.channel);
        while (!j->client.is_gone && channel_next(&j->client.channel, &type, &data, &len) == 1)
            on_client_frame(j, type, data, len);
    }
    if (r < 0)
        client_lost(j);
    else
        job_client_flush(j);
}

int job_client_start(struct job *j)
{
    int r = loop_add_fd(j->loop, j->client.channel.fd, EPOLLIN, on_client, j, &j->client.source);
    return r < 0 ? r
                 : loop_add_timer(j->loop, UINT64_MAX / 2, 0, on_wake, j, &j->client.wake_timer);
}
