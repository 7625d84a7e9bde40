/* `ebb wait` and `ebb logs`: long polls for the end of a job and for new output. */
#include "cli/job_wait.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/io.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "present/jobs.h"

enum { POLL_S = 50, LOG_POLL_S = 20, AWAY_S = 30, AGAIN_MS = 200, BUSY_MAX_S = 10 };
/* JOB_WAIT_NO_STATUS: the job was cancelled or lost, or could not be started. JOB_WAIT_TIMEOUT: the
 * time limit of --timeout has passed. */
enum { JOB_WAIT_NO_STATUS = 125, JOB_WAIT_TIMEOUT = 3 };

static bool is_state(const json_t *job, const char *word)
{
    const char *state = json_string_value(json_object_get(job, "state"));
    return state && strcmp(state, word) == 0;
}

int job_exit_status(const json_t *job)
{
    const json_t *status = json_object_get(job, "status");
    if (is_state(job, "succeeded"))
        return 0;
    if (!is_state(job, "failed") || !json_is_integer(status))
        return JOB_WAIT_NO_STATUS;
    json_int_t n = json_integer_value(status);
    return n > 0 && n < 256 ? (int)n : JOB_WAIT_NO_STATUS;
}

/* ---- waiting for a server that may be restarted meanwhile ---- */

struct patience {
    bool was_there;
    uint64_t gone_ns; /* time at which the server stopped answering; 0 while the server answers */
};

/* If the request should be repeated, pauses and returns true. R and STATUS are the result and the
 * HTTP status of the last request. */
static bool try_again(struct patience *p, int r, unsigned status)
{
    bool is_away = r == -ENOENT || r == -ECONNRESET || r == -EPIPE ||
                   (r == -EBADMSG && (status == 0 || status == 200)) ||
                   (r == -EREMOTEIO && status == 503);
    uint64_t now = clock_mono_ns();
    if (r == 0 || (r == -EREMOTEIO && status == 429)) {
        p->was_there = true;
        p->gone_ns = 0;
        return false;
    }
    if (!p->gone_ns)
        p->gone_ns = now;
    if (!is_away || !p->was_there || now - p->gone_ns > AWAY_S * NS_PER_S)
        return false;
    usleep(AGAIN_MS * 1000);
    return true;
}

/* If the server was too busy for the request, pauses, at most until UNTIL_NS, and returns true. The
 * caller then repeats the request. */
static bool was_busy(int r, const struct client_answer *answer, uint64_t until_ns)
{
    if (r != -EREMOTEIO || answer->status != 429)
        return false;
    uint64_t s = answer->retry_after_s, now = clock_mono_ns();
    uint64_t pause_ns = (s < 1 ? 1 : s > BUSY_MAX_S ? BUSY_MAX_S : s) * NS_PER_S;
    if (until_ns > now && until_ns - now < pause_ns)
        pause_ns = until_ns - now;
    if (until_ns > now)
        usleep((useconds_t)(pause_ns / 1000));
    return true;
}

/* Requests a job. Sets *RET to NULL if the server was too busy. */
static int get_job(const char *socket, int64_t id, unsigned wait_s, uint64_t until_ns,
                   struct patience *patience, json_t **ret, struct err *err)
{
    char path[96];
    struct client_answer answer;
    int r, n = snprintf(path, sizeof path, "/api/v1/jobs/%lld", (long long)id);
    if (wait_s)
        snprintf(path + n, sizeof path - (size_t)n, "?until=ended&timeout_s=%u", wait_s);
    const struct client_request request = {
        .socket = socket, .method = "GET", .path = path, .wait_s = wait_s};
    do {
        r = client_ask(&request, &answer, err);
        if (r < 0) {
            json_decref(answer.doc);
            answer.doc = NULL;
        }
    } while (try_again(patience, r, answer.status));
    if (r < 0 && !(wait_s && was_busy(r, &answer, until_ns)))
        return r;
    *ret = answer.doc;
    return 0;
}

int job_wait(const char *socket, int64_t id, uint64_t until_ns, json_t **ret, struct err *err)
{
    struct patience patience = {0};
    unsigned wait_s = 0; /* the first request does not wait: it checks whether the job exists */
    for (;;) {
        json_t *job;
        int r = get_job(socket, id, wait_s, until_ns, &patience, &job, err);
        if (r < 0)
            return r;
        uint64_t now = clock_mono_ns();
        if (job && (job_is_ended(job) || now >= until_ns)) {
            *ret = job;
            return 0;
        }
        json_decref(job);
        uint64_t left_s = now < until_ns ? (until_ns - now) / NS_PER_S + 1 : 0;
        wait_s = left_s < POLL_S ? (unsigned)left_s : POLL_S;
    }
}

/* ---- the log ---- */

struct printing {
    uint64_t bytes;
    int error;
};

static int print_part(void *user, const char *data, size_t len)
{
    struct printing *p = user;
    p->error = io_write_all(STDOUT_FILENO, data, len);
    if (p->error == 0)
        p->bytes += len;
    return p->error;
}

/* Prints the output that one answer contains, and advances the offset. Returns 0, -EAGAIN if the
 * request should be repeated, another -errno with an error, or the exit status if standard output
 * is closed. */
static int print_some(const char *socket, const char *path, unsigned wait_s,
                      struct patience *patience, uint64_t *offset, uint64_t *ret_end,
                      struct err *err)
{
    struct printing p = {0};
    struct client_answer answer;
    const struct client_request request = {.socket = socket,
                                           .method = "GET",
                                           .path = path,
                                           .wait_s = wait_s,
                                           .fn = print_part,
                                           .user = &p};
    int r = client_ask(&request, &answer, err);
    uint64_t from = answer.has_offset ? answer.offset : *offset;
    if (from > *offset && p.bytes && *offset > 0)
        cli_say("logs: %llu bytes of the log were dropped here",
                (unsigned long long)(from - *offset));
    *offset = from + p.bytes;
    *ret_end = answer.has_end ? answer.end : *offset;
    unsigned http_status = answer.status;
    bool is_busy = wait_s && was_busy(r, &answer, UINT64_MAX);
    client_answer_fini(&answer);
    if (is_busy)
        return -EAGAIN;
    if (p.error == -EPIPE)
        return CLI_PIPE_STATUS;
    if (p.error)
        return err_set(err, p.error, "cannot write to standard output: %s", strerror(-p.error));
    /* The answer was cut off, because this program read slowly or the server stopped. The next
     * request gets the missing part. */
    if (try_again(patience, r, http_status) || (p.bytes && r == -EBADMSG))
        return -EAGAIN;
    return r;
}

int job_print_log(const char *socket, int64_t id, uint64_t offset, bool follow, struct err *err)
{
    char path[128];
    uint64_t end = UINT64_MAX;
    struct patience patience = {0};
    bool is_ended = !follow;
    for (;;) {
        bool waits = !is_ended && offset >= end;
        int n = snprintf(path, sizeof path, "/api/v1/jobs/%lld/log?offset=%llu", (long long)id,
                         (unsigned long long)offset);
        if (waits)
            snprintf(path + n, sizeof path - (size_t)n, "&wait_s=%d", LOG_POLL_S);
        uint64_t before = offset;
        int r = print_some(socket, path, waits ? LOG_POLL_S : 0, &patience, &offset, &end, err);
        if (r == -EAGAIN || (r == 0 && offset > before))
            continue;
        if (r || is_ended)
            return r;
        /* The job may have written more output between this read and its end. So if the job has
         * ended, the loop reads the log once more and then returns. */
        json_t *job;
        r = get_job(socket, id, 0, UINT64_MAX, &patience, &job, err);
        if (r < 0)
            return r;
        is_ended = job_is_ended(job);
        json_decref(job);
    }
}

/* ---- wait ---- */

struct wait_options {
    struct client_options client;
    uint64_t timeout_ns;
    bool quiet;
};

static const struct option_desc wait_table[] = {
    OPTION_ROW('t', "timeout", DURATION, "TIME", offsetof(struct wait_options, timeout_ns),
               .help = "maximum wait; after it, the exit status is 3"),
    OPTION_ROW('q', "quiet", FLAG, NULL, offsetof(struct wait_options, quiet),
               .help = "print nothing"),
    CLIENT_JSON_OPTION("print each job as one line of JSON"),
    CLIENT_SOCKET_OPTION,
    {0},
};

static int print_end(const struct wait_options *o, int64_t id, const json_t *job)
{
    struct buf text = {0};
    if (o->quiet)
        return 0;
    if (o->client.json)
        return cli_print_json_line(job);
    buf_printf(&text, "%lld ", (long long)id);
    job_end_text(&text, job);
    buf_add_byte(&text, '\n');
    return cli_print(&text);
}

/* Waits for one job. Returns 0 and stores the exit status of that job in *RET_STATUS; otherwise
 * returns our own exit status or -errno. */
static int wait_one(const struct wait_options *o, int64_t id, uint64_t until_ns, int *ret_status,
                    struct err *err)
{
    json_t *job;
    int r = job_wait(o->client.socket, id, until_ns, &job, err);
    if (r < 0)
        return r;
    if (job_is_ended(job)) {
        r = print_end(o, id, job);
        *ret_status = job_exit_status(job);
    } else {
        r = cli_failf(JOB_WAIT_TIMEOUT, "wait: job %lld has not ended", (long long)id);
    }
    json_decref(job);
    return r;
}

static int wait_exec(const struct cli_call *call, struct err *err)
{
    const struct wait_options *o = call->options;
    AUTO_FREE int64_t *ids = calloc((size_t)call->argc, sizeof *ids);
    int worst = 0, r = 0;
    if (!ids)
        return err_set(err, -ENOMEM, "out of memory");
    bool has_timeout = options_find(call->given, "timeout");
    uint64_t until_ns = has_timeout ? clock_mono_ns() + o->timeout_ns : UINT64_MAX;
    for (int i = 0; r == 0 && i < call->argc; i++)
        r = client_parse_id(call->argv[i], &ids[i], err);
    for (int i = 0; r == 0 && i < call->argc; i++) {
        int own = 0;
        r = wait_one(o, ids[i], until_ns, &own, err);
        worst = own > worst ? own : worst;
    }
    return r ? r : worst;
}

const struct cli_command cmd_wait = {
    .name = "wait",
    .operands = "ID…",
    .summary = "wait for jobs on the server to end",
    .description =
        "Prints a line for each job when it has ended, in the order given. The exit status is "
        "the job's own, as with `ebb run` (124: stopped by the guard); for several jobs, the "
        "highest. 125: a job was cancelled or lost, or could not be started; 3: --timeout has "
        "passed; 2: the server does not answer or does not know the job.",
    .examples = "ebb wait $(ebb submit -- python train.py)\n"
                "ebb wait --timeout 2h 17 18 19\n",
    .options = wait_table,
    .options_size = sizeof(struct wait_options),
    .exec = wait_exec,
};

/* ---- logs ---- */

struct logs_options {
    struct client_options client;
    int64_t tail;
    bool follow;
};

enum { TAIL_FIRST = 64 << 10, TAIL_MOST = 1 << 20, LINES_MAX = 1000000 };

static const struct option_desc logs_table[] = {
    OPTION_ROW('f', "follow", FLAG, NULL, offsetof(struct logs_options, follow),
               .help = "follow the log until the job has ended"),
    OPTION_ROW('n', "tail", INT, "N", offsetof(struct logs_options, tail), .max = LINES_MAX,
               .help = "start with the last N lines (default: with the first line)"),
    CLIENT_SOCKET_OPTION,
    {0},
};

static int logs_keep(void *user, const char *data, size_t len)
{
    struct buf *b = user;
    if (b->len + len > 2 * TAIL_MOST)
        return -EFBIG;
    buf_add(b, data, len);
    return b->failed ? -ENOMEM : 0;
}

/* Finds the start of the last LINES lines of TEXT. Returns false if TEXT has at most LINES
 * lines. */
static bool cut_lines(const struct buf *text, int64_t lines, size_t *ret)
{
    size_t at = text->len;
    if (at && text->data[at - 1] == '\n')
        at--;
    while (at > 0 && lines > 0) {
        if (text->data[at - 1] == '\n' && --lines == 0)
            break;
        at--;
    }
    *ret = lines == 0 && text->len && at == text->len - 1 ? text->len : at;
    return at > 0;
}

/* Prints the last lines of the log. RET_OFFSET is the offset after these lines. */
static int print_tail(const struct logs_options *o, int64_t id, uint64_t *ret_offset,
                      struct err *err)
{
    struct buf text = {0};
    struct client_answer answer = {0};
    int r = 0;
    size_t from = 0;
    for (int64_t size = TAIL_FIRST;; size *= 4) {
        char path[96];
        snprintf(path, sizeof path, "/api/v1/jobs/%lld/log?tail=%lld", (long long)id,
                 (long long)size);
        const struct client_request request = {.socket = o->client.socket,
                                               .method = "GET",
                                               .path = path,
                                               .fn = logs_keep,
                                               .user = &text};
        buf_clear(&text);
        r = client_ask(&request, &answer, err);
        bool is_enough = r == 0 && (cut_lines(&text, o->tail, &from) || size >= TAIL_MOST ||
                                    (int64_t)text.len < size);
        *ret_offset = answer.has_offset ? answer.offset + text.len : answer.end;
        client_answer_fini(&answer);
        if (r < 0 || is_enough)
            break;
    }
    if (r == 0) {
        r = io_write_all(STDOUT_FILENO, text.data + from, text.len - from);
        if (r == -EPIPE)
            r = CLI_PIPE_STATUS;
        else if (r < 0)
            err_set(err, r, "cannot write to standard output: %s", strerror(-r));
    }
    buf_fini(&text);
    return r;
}

static int logs_exec(const struct cli_call *call, struct err *err)
{
    const struct logs_options *o = call->options;
    int64_t id;
    uint64_t offset = 0;
    int r = client_parse_id(call->argv[0], &id, err);
    bool is_tail = options_find(call->given, "tail");
    if (r == 0 && is_tail)
        r = print_tail(o, id, &offset, err);
    if (r == 0 && (!is_tail || o->follow))
        r = job_print_log(o->client.socket, id, offset, o->follow, err);
    return r;
}

const struct cli_command cmd_logs = {
    .name = "logs",
    .operands = "ID",
    .summary = "print the output of a job on the server",
    .description =
        "Prints the output of a job unchanged. If the output is long, the server keeps its "
        "beginning and its newest part (ebb serve --log-max); the gap between them is reported "
        "on standard error.",
    .examples = "ebb logs 17\n"
                "ebb logs -f --tail 20 17\n",
    .options = logs_table,
    .options_size = sizeof(struct logs_options),
    .exec = logs_exec,
};
