/* `ebb mark`: reports a step or a phase from a shell script. */
#include "cli/cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "mark/mark.h"

struct mark_options {
    const char *socket;
    bool quiet;
};

/* A script must not hang on `ebb mark`. If the receiver accepts nothing for this long, the mark is
 * dropped. */
enum { WAIT_MS = 200 };

/* Checks each argument separately, so that the error can name the invalid one. */
static int check_argument(const char *argument, struct err *err)
{
    struct mark mark;
    struct buf text = {0};
    size_t key = strspn(argument, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_");
    if (strchr(argument, '\n'))
        return err_set(err, -EINVAL,
                       "\"%.100s\" contains a line break; a mark has one line for each "
                       "KEY=VALUE",
                       argument);
    if (argument[key] != '=' || key == 0 || argument[0] < 'A')
        return err_set(err, -EINVAL,
                       "\"%.100s\" is not KEY=VALUE; write it like STEP=3, with the key "
                       "in capitals",
                       argument);
    buf_printf(&text, "KIND=other\n%s\n", argument);
    int r = mark_parse(buf_str(&text), text.len, &mark);
    buf_fini(&text);
    if (r < 0 && strlen(argument) > MARK_TEXT_MAX - 16)
        return err_set(err, -EINVAL, "\"%.60s…\" is too long; a mark has at most %d bytes",
                       argument, (int)MARK_TEXT_MAX);
    if (r < 0)
        return err_set(err, -EINVAL, "\"%.100s\": invalid value for %.*s; write it like %.*s=3",
                       argument, (int)key, argument, (int)key, argument);
    return 0;
}

static int build_mark(const struct cli_call *call, struct buf *ret, struct err *err)
{
    struct mark mark;
    bool has_kind = false;
    for (int i = 0; i < call->argc; i++) {
        int r = check_argument(call->argv[i], err);
        if (r < 0)
            return r;
        has_kind = has_kind || strncmp(call->argv[i], "KIND=", 5) == 0;
        buf_printf(ret, "%s\n", call->argv[i]);
    }
    if (!has_kind)
        return err_set(err, -EINVAL, "KIND is missing; write it like KIND=step");
    if (ret->failed)
        return err_set(err, -ENOMEM, "out of memory");
    if (ret->len > MARK_TEXT_MAX)
        return err_set(err, -EINVAL, "a mark of %zu bytes is too long; at most %d are allowed",
                       ret->len, (int)MARK_TEXT_MAX);
    if (mark_parse(ret->data, ret->len, &mark) < 0)
        return err_set(err, -EINVAL, "KIND has no value; write it like KIND=step");
    return 0;
}

static int send_mark(const struct mark_options *options, const struct buf *text, struct err *err)
{
    const char *path = options->socket ? options->socket : getenv("EBB_SOCKET");
    if (!path || !*path) {
        if (options->quiet)
            return 0;
        return err_set(err, -ENOENT,
                       "EBB_SOCKET is not set, so this command does not run under `ebb run`; give "
                       "--socket PATH, or --quiet to ignore this");
    }
    int r = mark_send(path, text->data, text->len, WAIT_MS);
    if (r == 0 || (options->quiet && (r == -ENOENT || r == -ECONNREFUSED)))
        return 0; /* the run that created the socket has ended */
    if (r == -EAGAIN)
        return err_set(err, r, "no process receives marks from %s at the moment; the mark is lost",
                       path);
    return err_set(err, r, "cannot send to %s: %s", path, strerror(-r));
}

static int mark_exec(const struct cli_call *call, struct err *err)
{
    struct buf text = {0};
    int r = build_mark(call, &text, err);
    if (r == 0)
        r = send_mark(call->options, &text, err);
    buf_fini(&text);
    return r;
}

static const struct option_desc options_table[] = {
    OPTION_ROW(0, "socket", PATH, "PATH", offsetof(struct mark_options, socket),
               .help = "send to this socket instead of $EBB_SOCKET"),
    OPTION_ROW('q', "quiet", FLAG, NULL, offsetof(struct mark_options, quiet),
               .help = "outside a run, do nothing and exit with status 0"),
    {0},
};

const struct cli_command cmd_mark = {
    .name = "mark",
    .operands = "KEY=VALUE…",
    .summary = "report a step or a phase from a script",
    .description =
        "Sends one mark to the `ebb run` that the script runs in. KIND is required: begin, "
        "step, substep, eval, save, epoch, end, phase, or a word of your own. STEP, EPOCH, "
        "STEPS_PER_EPOCH, MAX_STEPS and RANK are numbers; other keys are stored as they are.",
    .examples = "ebb mark KIND=step STEP=3\n"
                "ebb mark -q KIND=phase NAME=eval STATE=begin\n",
    .options = options_table,
    .options_size = sizeof(struct mark_options),
    .exec = mark_exec,
};
