/* The request handler for a job's log: ranges, the tail, and new output from an offset on. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"
#include "server/jobs/jobs.h"
#include "server/http/routes_private.h"
#include "trace/logs.h"

enum { TAIL_MAX = 1 << 20 };
static const char type[] = "text/plain; charset=utf-8";

static void add_offset_headers(struct http_request *r, uint64_t offset, uint64_t end)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)offset);
    http_add_header(r, "X-Log-Offset", text);
    snprintf(text, sizeof text, "%llu", (unsigned long long)end);
    http_add_header(r, "X-Log-End", text);
}

static void answer_empty(struct http_request *r, uint64_t offset, uint64_t end)
{
    add_offset_headers(r, offset, end);
    http_answer_text(r, 200, type, "", 0);
}

/* Answers with at most LEN bytes from OFFSET on, all from one file of the log. The client then
 * requests the next bytes. Returns -ENODATA, without an answer, if the log ends before OFFSET. */
static int answer_piece(struct http_request *r, int folder, unsigned status, uint64_t offset,
                        uint64_t len)
{
    struct logs_piece piece;
    uint64_t end = 0;
    int result = logs_find(folder, offset, &piece, &end);
    if (result < 0)
        return result;
    uint64_t at = offset > piece.start ? offset : piece.start;
    uint64_t left = piece.start + piece.bytes - at;
    uint64_t n = left < len ? left : len;
    add_offset_headers(r, at, end);
    if (status == 206) {
        char range[80];
        snprintf(range, sizeof range, "bytes %llu-%llu/%llu", (unsigned long long)at,
                 (unsigned long long)(at + n - 1), (unsigned long long)end);
        http_add_header(r, "Content-Range", range);
    }
    http_answer_file(r, status, type, piece.fd, at - piece.start, n, piece.bytes);
    return 0;
}

/* Parses a single range: "bytes=A-B", "bytes=A-" or "bytes=-N". Returns false if the header is to
 * be ignored. */
static bool read_range(const char *text, uint64_t end, uint64_t *ret_first, uint64_t *ret_last)
{
    int64_t a, b;
    if (!text || strncmp(text, "bytes=", 6) != 0)
        return false;
    text += 6;
    const char *dash = strchr(text, '-');
    if (!dash || strchr(text, ','))
        return false;
    bool has_a = number_parse_i64(text, (size_t)(dash - text), &a) == 0;
    bool has_b = dash[1] != '-' && number_parse_i64(dash + 1, strlen(dash + 1), &b) == 0;
    if ((dash > text && !has_a) || (dash[1] && !has_b) || (!has_a && !has_b))
        return false;
    if (!has_a) {
        *ret_first = (uint64_t)b < end ? end - (uint64_t)b : 0;
        *ret_last = end - 1;
        return b > 0;
    }
    *ret_first = (uint64_t)a;
    *ret_last = has_b ? (uint64_t)b : UINT64_MAX - 1;
    return *ret_last >= *ret_first;
}

/* ---- the whole log, from several files ---- */

/* Positions in the log and in the answer. They differ if parts of the log were dropped. */
struct log_stream {
    int folder;
    uint64_t pos, at;
};

static ssize_t read_log_stream(void *user, uint64_t pos, char *buf, size_t max)
{
    struct log_stream *w = user;
    uint64_t from;
    if (pos != w->pos)
        return -1;
    ssize_t n = logs_read(w->folder, w->at, buf, max, &from);
    if (n <= 0)
        return -1;
    w->pos += (uint64_t)n;
    w->at = from + (uint64_t)n;
    return n;
}

static void free_log_stream(void *user)
{
    struct log_stream *w = user;
    close(w->folder);
    free(w);
}

/* Counts the bytes from *FROM on in all files, up to their current ends. If IS_WHOLE is set, the
 * answer must not have gaps, so *FROM is moved to the end of the last gap. */
static uint64_t count_log_bytes(int folder, uint64_t *from, uint64_t end, bool is_whole)
{
    struct logs_piece piece;
    uint64_t count = 0;
    for (uint64_t at = *from; at < end && logs_find(folder, at, &piece, NULL) == 0;) {
        close(piece.fd);
        if (piece.start + piece.bytes <= at)
            break;
        if (piece.start > at && (is_whole || count == 0)) {
            *from = piece.start;
            count = 0;
        }
        at = at > piece.start ? at : piece.start;
        count += piece.start + piece.bytes - at;
        at = piece.start + piece.bytes;
    }
    return count;
}

static void answer_from(struct http_request *r, int folder, uint64_t from, uint64_t end,
                        bool is_whole)
{
    uint64_t count = count_log_bytes(folder, &from, end, is_whole);
    struct log_stream *w = malloc(sizeof *w);
    int fd = w ? fcntl(folder, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd < 0) {
        free(w);
        http_answer_error(r, 503, "cannot read the log: %s", strerror(errno));
        return;
    }
    *w = (struct log_stream){.folder = fd, .at = from};
    if (count == 0) { /* MHD does not call the reader of an empty answer */
        free_log_stream(w);
        answer_empty(r, from, end);
        return;
    }
    add_offset_headers(r, from, end);
    http_answer_stream(r, 200, type, count, read_log_stream, w, free_log_stream);
}

static void answer_range(struct http_request *r, int folder)
{
    uint64_t end = logs_end(folder), first = 0, last = UINT64_MAX - 1;
    if (!read_range(http_header(r, "Range"), end, &first, &last)) {
        answer_from(r, folder, 0, end, false);
        return;
    }
    if (end > 0 && answer_piece(r, folder, 206, first, last - first + 1) == 0)
        return;
    char range[40];
    snprintf(range, sizeof range, "bytes */%llu", (unsigned long long)end);
    http_add_header(r, "Content-Range", range);
    http_answer_error(r, 416, "range not satisfiable: the log has %llu bytes",
                      (unsigned long long)end);
}

/* Answers with the log from an offset on. The answer is empty only if IS_LAST is set or the job has
 * ended. */
bool route_answer_log(const struct route_waiter *w, bool is_last)
{
    struct jobs *jobs = w->call->routes->options.jobs;
    struct http_request *r = w->call->r;
    enum job_state state = jobs_state(jobs, w->call->id);
    AUTO_CLOSE int folder = jobs_folder(jobs, w->call->id, NULL, 0);
    if (folder >= 0 && answer_piece(r, folder, 200, w->offset, UINT64_MAX) == 0)
        return true;
    if (!is_last && state != JOB_STATES && !job_state_is_final(state))
        return false;
    answer_empty(r, w->offset, folder >= 0 ? logs_end(folder) : 0);
    return true;
}

static void answer_offset(const struct route_call *c)
{
    double offset, wait_s;
    if (route_number(c->r, "offset", 0, 9e15, 0, &offset) &&
        route_number(c->r, "wait_s", 0, ROUTES_WAIT_MAX_S, 0, &wait_s))
        route_wait(c, &(struct route_waiter){.what = WAIT_LOG, .offset = (uint64_t)offset}, wait_s);
}

void route_job_log(const struct route_call *c)
{
    struct jobs *jobs = c->routes->options.jobs;
    enum job_state state = jobs_state(jobs, c->id);
    double tail;
    if (state == JOB_STATES) {
        http_answer_error(c->r, 404, "no such job: %lld", (long long)c->id);
        return;
    }
    AUTO_CLOSE int folder = jobs_folder(jobs, c->id, NULL, 0);
    if (folder < 0 && job_state_is_final(state)) {
        http_answer_error(c->r, 404, "the run folder of job %lld was removed", (long long)c->id);
        return;
    }
    if (http_query(c->r, "offset") || http_query(c->r, "wait_s")) {
        answer_offset(c);
    } else if (!route_number(c->r, "tail", 1, TAIL_MAX, 0, &tail)) {
        return;
    } else if (folder < 0) {
        answer_empty(c->r, 0, 0);
    } else if (tail > 0) {
        uint64_t end = logs_end(folder);
        answer_from(c->r, folder, end > (uint64_t)tail ? end - (uint64_t)tail : 0, end, true);
    } else {
        answer_range(c->r, folder);
    }
}
