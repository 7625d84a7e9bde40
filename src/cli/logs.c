/* `ebb logs`: prints the output of a job. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/io.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/job_wait.h"

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
