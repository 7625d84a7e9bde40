/* Writes the lines of the server's log, as JSON or as text. */
#include "server/http/log.h"

#include <jansson.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"

enum { MESSAGE_MAX = 1024 };

static struct {
    int fd;
    enum log_level least;
    int as_json;
    unsigned long lost;
} out = {.fd = -1};

static const char *const words[] = {"debug", "info", "warn", "error"};

void log_start(int fd, enum log_level least, int as_json)
{
    out.fd = fd;
    out.least = least;
    out.as_json = as_json;
    out.lost = 0;
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

/* Writes a line. A pipe that poll() reports as writable accepts PIPE_BUF bytes without blocking. */
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

void log_line(enum log_level level, const char *event, int64_t job, const char *fmt, ...)
{
    unsigned long lost = out.lost;
    if (out.fd < 0 || level < out.least)
        return;
    if (lost && strcmp(event, "log_lost") != 0) {
        out.lost = 0;
        log_line(LOG_WARN, "log_lost", 0, "%lu log lines were dropped here", lost);
        out.lost += out.lost ? lost - 1 : 0;
    }
    va_list ap;
    va_start(ap, fmt);
    write_line(level, event, job, fmt, ap);
    va_end(ap);
}
