/* The request handler for a job's log: byte ranges, the tail, and output after an offset. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/number.h"
#include "base/text.h"
#include "server/jobs/jobs.h"
#include "server/jobs/workers.h"
#include "server/http/routes_private.h"
#include "trace/logs.h"

enum { TAIL_MAX = 1 << 20, PIECE_MAX = 64 << 10 };
static const char type[] = "text/plain; charset=utf-8";

static void add_offset_headers(struct http_request *r, uint64_t offset, uint64_t end)
{
    char text[32];
    snprintf(text, sizeof text, "%llu", (unsigned long long)offset);
    http_add_header(r, "X-Log-Offset", text);
    snprintf(text, sizeof text, "%llu", (unsigned long long)end);
    http_add_header(r, "X-Log-End", text);
}

/* Parses a single range: "bytes=A-B", "bytes=A-" or "bytes=-N". Returns false if the header must be
 * ignored. */
static bool read_range(const char *text, uint64_t end, uint64_t *ret_first, uint64_t *ret_last)
{
    int64_t a, b;
    if (strncmp(text, "bytes=", 6) != 0)
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

/* ---- reading the log in a thread ---- */

struct log_reading {
    struct route_reading base;
    struct jobs *jobs;
    /* The requested bytes: the last TAIL bytes if TAIL is above 0; the bytes that begin at OFFSET
     * if HAS_OFFSET is set; the range in the header Range; or the whole log. */
    uint64_t tail, offset;
    bool has_offset;
    char range[80];
    double wait_s;     /* maximum time to wait for output, if HAS_OFFSET is set */
    uint64_t log_news; /* value of log_news in struct routes before the read */
    /* the job had ended before this read began, so the log is complete */
    bool has_ended;
    /* The results: */
    bool has_folder;
    unsigned status;
    /* the answer contains COUNT bytes that begin at offset AT; END is the end of the log */
    uint64_t at, count, end;
    char *data; /* the first LEN bytes of the answer */
    size_t len;
};

/* Returns the number of bytes between offset *FROM and END that exist in the log files. If *FROM is
 * in a gap, moves *FROM to the end of the gap. If IS_WHOLE is set, the answer must not contain
 * gaps, so *FROM is moved to the end of the last gap. */
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

/* Finds a piece of at most LEN bytes in one log file. The piece begins at OFFSET or, if OFFSET is
 * in a gap, after the gap. The client requests the rest separately. COUNT stays 0 if the log ends
 * before OFFSET. */
static void find_log_piece(struct log_reading *r, int folder, uint64_t offset, uint64_t len)
{
    struct logs_piece piece;
    r->at = offset;
    if (logs_find(folder, offset, &piece, &r->end) < 0)
        return;
    close(piece.fd);
    r->at = offset > piece.start ? offset : piece.start;
    uint64_t left = piece.start + piece.bytes - r->at;
    r->count = left < len ? left : len;
}

static void find_log_bytes(struct log_reading *r, int folder)
{
    uint64_t first = 0, last = UINT64_MAX - 1;
    r->end = logs_end(folder);
    if (r->has_offset) {
        find_log_piece(r, folder, r->offset, UINT64_MAX);
    } else if (!r->tail && read_range(r->range, r->end, &first, &last)) {
        find_log_piece(r, folder, first, last - first + 1);
        r->status = r->count ? 206 : 416;
    } else {
        r->at = r->tail && r->end > r->tail ? r->end - r->tail : 0;
        r->count = count_log_bytes(folder, &r->at, r->end, r->tail);
    }
}

static void read_log(struct jobs_reading *base, int folder)
{
    struct log_reading *r = (struct log_reading *)base;
    uint64_t at;
    r->has_folder = folder >= 0;
    r->status = 200;
    r->at = r->offset;
    if (r->has_folder)
        find_log_bytes(r, folder);
    size_t max = r->count < PIECE_MAX ? (size_t)r->count : PIECE_MAX;
    r->data = max ? malloc(max) : NULL;
    ssize_t n = r->data ? logs_read(folder, r->at, r->data, max, &at) : 0;
    r->len = n > 0 ? (size_t)n : 0;
}

static void fini_log(struct route_reading *base)
{
    free(((struct log_reading *)base)->data);
}

/* ---- answers that are too long for one piece ---- */

/* A position in the answer differs from the position in the log, because parts of the log may have
 * been dropped. */
struct log_stream {
    struct jobs *jobs;
    struct http_request *r;
    int64_t id;
    /* position of the next byte in the answer, and of the next piece in the log */
    uint64_t pos, at;
    char *data; /* the current piece, of which USED bytes of LEN were sent */
    size_t len, used;
    struct task *task; /* task that reads the next piece; NULL while no piece is being read */
    bool has_failed;
};

struct log_next {
    struct jobs_reading base;
    struct log_stream *stream;
    uint64_t at;
    char *data;
    ssize_t len;
};

static void read_next(struct jobs_reading *base, int folder)
{
    struct log_next *next = (struct log_next *)base;
    next->data = folder < 0 ? NULL : malloc(PIECE_MAX);
    next->len =
        next->data ? logs_read(folder, next->at, next->data, PIECE_MAX, &next->at) : -ENOENT;
}

static void on_next(struct jobs_reading *base)
{
    struct log_next *next = (struct log_next *)base;
    struct log_stream *w = next->stream;
    bool has_waited = w->task;
    w->task = NULL;
    w->has_failed = next->len <= 0;
    if (!w->has_failed) {
        free(w->data);
        w->data = next->data;
        w->len = (size_t)next->len;
        w->used = 0;
        w->at = next->at + w->len;
        next->data = NULL;
    }
    if (has_waited)
        http_stream_go_on(w->r);
}

static void free_next(struct jobs_reading *base)
{
    free(((struct log_next *)base)->data);
    free(base);
}

static ssize_t read_log_stream(void *user, uint64_t pos, char *buf, size_t max)
{
    struct log_stream *w = user;
    if (w->used == w->len && !w->has_failed) {
        struct log_next *next = calloc(1, sizeof *next);
        if (!next)
            return -1;
        *next = (struct log_next){.base = {.read = read_next, .done = on_next, .free = free_next},
                                  .stream = w,
                                  .at = w->at};
        if (jobs_read(w->jobs, w->id, &next->base, &w->task) < 0)
            return -1;
        if (w->task)
            return -EAGAIN;
    }
    if (w->has_failed || pos != w->pos)
        return -1;
    size_t left = w->len - w->used, n = left < max ? left : max;
    memcpy(buf, w->data + w->used, n);
    w->used += n;
    w->pos += n;
    return (ssize_t)n;
}

static void free_log_stream(void *user)
{
    struct log_stream *w = user;
    task_cancel(w->task);
    free(w->data);
    free(w);
}

static void answer_log_stream(struct log_reading *r)
{
    struct http_request *request = r->base.call->r;
    struct log_stream *w = malloc(sizeof *w);
    if (!w) {
        http_answer_error(request, 503, "out of memory");
        return;
    }
    *w = (struct log_stream){.jobs = r->jobs,
                             .r = request,
                             .id = r->base.call->id,
                             .at = r->at + r->len,
                             .data = r->data,
                             .len = r->len};
    r->data = NULL;
    http_answer_stream(request, r->status, type, r->count, read_log_stream, w, free_log_stream);
}

/* ---- answers ---- */

static void answer_log_bytes(struct log_reading *r)
{
    struct http_request *request = r->base.call->r;
    char range[80];
    add_offset_headers(request, r->at, r->end);
    if (r->status == 206) {
        snprintf(range, sizeof range, "bytes %llu-%llu/%llu", (unsigned long long)r->at,
                 (unsigned long long)(r->at + r->count - 1), (unsigned long long)r->end);
        http_add_header(request, "Content-Range", range);
    }
    if (r->len < r->count)
        answer_log_stream(r);
    else
        http_answer_text(request, r->status, type, r->data ? r->data : "", r->len);
}

static void answer_log_range_error(struct log_reading *r)
{
    char range[40];
    snprintf(range, sizeof range, "bytes */%llu", (unsigned long long)r->end);
    http_add_header(r->base.call->r, "Content-Range", range);
    http_answer_error(r->base.call->r, 416, "range not satisfiable: the log has %llu bytes",
                      (unsigned long long)r->end);
}

static void answer_log(struct route_reading *base)
{
    struct log_reading *r = (struct log_reading *)base;
    struct route_call *c = base->call;
    if (!r->has_folder && r->has_ended && !c->until_ns)
        http_answer_error(c->r, 404, "the run folder of job %lld was removed", (long long)c->id);
    else if (r->status == 416)
        answer_log_range_error(r);
    else if (r->has_offset && r->count == 0 && r->wait_s > 0 && !r->has_ended && !c->is_last)
        /* if output was written during this read, the log is read again at once */
        route_wait(c, WAIT_LOG, r->wait_s, c->routes->log_news != r->log_news);
    else
        answer_log_bytes(r);
}

void route_job_log(struct route_call *c)
{
    struct jobs *jobs = c->routes->options.jobs;
    const char *range = http_header(c->r, "Range");
    double tail = 0, offset = 0, wait_s = 0;
    bool has_offset = http_query(c->r, "offset") || http_query(c->r, "wait_s");
    const enum job_state state = jobs_state(jobs, c->id);
    if (state == JOB_STATES) {
        http_answer_error(c->r, 404, "no such job: %lld", (long long)c->id);
        return;
    }
    if (has_offset ? !route_number(c->r, "offset", 0, 9e15, 0, &offset) ||
                         !route_number(c->r, "wait_s", 0, ROUTES_WAIT_MAX_S, 0, &wait_s)
                   : !route_number(c->r, "tail", 1, TAIL_MAX, 0, &tail))
        return;
    struct log_reading *r = calloc(1, sizeof *r);
    if (r) {
        *r = (struct log_reading){
            .base = {.base = {.read = read_log}, .answer = answer_log, .fini = fini_log},
            .jobs = jobs,
            .has_ended = job_state_is_final(state),
            .has_offset = has_offset,
            .offset = (uint64_t)offset,
            .wait_s = wait_s,
            .log_news = c->routes->log_news,
            .tail = (uint64_t)tail};
        text_copy(r->range, sizeof r->range, range);
    }
    route_read(c, r ? &r->base : NULL);
}
