/* Writes the lines of the server's log, as JSON or as text. */
#include "server/http/log.h"

#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"

enum {
    MESSAGE_MAX = 1024,
    BURST = 20,  /* number of lines per event and job that may be written at once */
    EVERY_S = 5, /* interval at which one more line is allowed after the burst */
};

/* The token bucket that limits the lines of one event and job. */
struct log_bucket {
    int64_t job;
    const char *event;
    uint64_t full_ns; /* time of the monotonic clock at which the bucket will be full again */
    unsigned long suppressed;
};

static struct {
    int fd;
    enum log_level least;
    int as_json;
    unsigned long lost;
    struct log_bucket *buckets;
    size_t bucket_count;
} out = {.fd = -1};

static const char *const words[] = {"debug", "info", "warn", "error"};

void log_start(int fd, enum log_level least, int as_json)
{
    out.fd = fd;
    out.least = least;
    out.as_json = as_json;
    out.lost = 0;
    free(out.buckets);
    out.buckets = NULL;
    out.bucket_count = 0;
}

static void put_time(char ret[40])
{
    uint64_t now_ns = clock_wall_ns();
    time_t seconds = (time_t)(now_ns / NS_PER_S);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    size_t n = strftime(ret, 40, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(ret + n, 40 - n, ".%03uZ", (unsigned)(now_ns % NS_PER_S / NS_PER_MS));
}

static void put_text(struct buf *line, const char *t, enum log_level level, const char *event,
                     int64_t job, const struct buf *message)
{
    buf_printf(line, "%.19s %-5s %s: ", t, words[level], event);
    if (job)
        buf_printf(line, "job %lld: ", (long long)job);
    text_escape(line, message->data, message->len);
    buf_add_byte(line, '\n');
}

static void put_json(struct buf *line, const char *t, enum log_level level, const char *event,
                     int64_t job, const struct buf *message)
{
    json_t *doc = json_pack("{s:s, s:s, s:s}", "t", t, "level", words[level], "event", event);
    if (job)
        json_object_set_new(doc, "job", json_integer(job));
    json_object_set_new(doc, "message", json_text(message->data, message->len));
    json_print(line, doc, 0);
    json_decref(doc);
}

/* Writes a line. A pipe that poll() reports as writable takes PIPE_BUF bytes without blocking. */
__attribute__((format(printf, 4, 0))) static void
write_line(enum log_level level, const char *event, int64_t job, const char *fmt, va_list ap)
{
    struct buf message = {0}, line = {0};
    struct pollfd p = {.fd = out.fd, .events = POLLOUT};
    char t[40];
    put_time(t);
    buf_vprintf(&message, fmt, ap);
    message.len = message.len < MESSAGE_MAX ? message.len : MESSAGE_MAX;
    (out.as_json ? put_json : put_text)(&line, t, level, event, job, &message);
    if (line.failed || line.len > PIPE_BUF || poll(&p, 1, 0) != 1 || !(p.revents & POLLOUT) ||
        write(out.fd, line.data, line.len) < 0)
        out.lost++;
    buf_fini(&line);
    buf_fini(&message);
}

__attribute__((format(printf, 3, 4))) static void write_warning(const char *event, int64_t job,
                                                                const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    write_line(LOG_WARN, event, job, fmt, ap);
    va_end(ap);
}

static void log_lost_lines(void)
{
    unsigned long lost = out.lost;
    if (!lost)
        return;
    out.lost = 0;
    write_warning("log_lost", 0, "%lu log lines were dropped here", lost);
    out.lost += out.lost ? lost - 1 : 0;
}

/* ---- token buckets ---- */

static void log_suppressed_lines(struct log_bucket *b)
{
    if (b->suppressed)
        write_warning("log_limited", b->job, "%lu %s lines suppressed", b->suppressed, b->event);
    b->suppressed = 0;
}

/* Finds the bucket of EVENT and JOB. A full bucket equals a new one, so its entry may be reused.
 * Returns NULL if out of memory. */
static struct log_bucket *find_bucket(const char *event, int64_t job, uint64_t now_ns)
{
    struct log_bucket *full = NULL;
    for (size_t i = 0; i < out.bucket_count; i++) {
        struct log_bucket *b = &out.buckets[i];
        if (b->job == job && strcmp(b->event, event) == 0)
            return b;
        if (b->full_ns <= now_ns)
            full = b;
    }
    if (full) {
        log_suppressed_lines(full);
    } else {
        struct log_bucket *more =
            realloc(out.buckets, (out.bucket_count + 1) * sizeof *out.buckets);
        if (!more)
            return NULL;
        out.buckets = more;
        full = &more[out.bucket_count++];
    }
    *full = (struct log_bucket){.job = job, .event = event};
    return full;
}

/* True if another line of EVENT about JOB may be written now. */
static bool take_token(const char *event, int64_t job)
{
    uint64_t now_ns = clock_mono_ns();
    struct log_bucket *b = find_bucket(event, job, now_ns);
    if (!b)
        return true;
    if (b->full_ns > now_ns + (BURST - 1) * EVERY_S * NS_PER_S) {
        b->suppressed++;
        return false;
    }
    log_suppressed_lines(b);
    b->full_ns = (b->full_ns > now_ns ? b->full_ns : now_ns) + EVERY_S * NS_PER_S;
    return true;
}

void log_job_over(int64_t job)
{
    for (size_t i = 0; i < out.bucket_count;) {
        if (out.buckets[i].job != job) {
            i++;
            continue;
        }
        log_suppressed_lines(&out.buckets[i]);
        out.buckets[i] = out.buckets[--out.bucket_count];
    }
}

void log_line(enum log_level level, const char *event, int64_t job, const char *fmt, ...)
{
    if (out.fd < 0 || level < out.least)
        return;
    log_lost_lines();
    if (!take_token(event, job))
        return;
    va_list ap;
    va_start(ap, fmt);
    write_line(level, event, job, fmt, ap);
    va_end(ap);
}
