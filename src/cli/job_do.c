/* `ebb cancel`, `checkpoint` and `rerun`: act on jobs of the server. */
#include <stdio.h>

#include "base/buf.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/client.h"

/* Sends POST jobs/ID/WHAT with BODY, and releases BODY. The caller owns *RET; RET may be NULL. */
static int post(const char *what, const char *socket, const char *text, json_t *body, json_t **ret,
                struct err *err)
{
    char path[80];
    int64_t id;
    json_t *doc = NULL;
    int r = client_parse_id(text, &id, err);
    if (r == 0) {
        snprintf(path, sizeof path, "/api/v1/jobs/%lld/%s", (long long)id, what);
        r = client_json(socket, "POST", path, body, &doc, err);
    }
    json_decref(body);
    if (ret)
        *ret = doc;
    else
        json_decref(doc);
    return r;
}

/* ---- cancel ---- */

struct cancel_options {
    struct client_options client;
    uint64_t grace_ns;
    const char *reason;
};

static const struct option_desc cancel_table[] = {
    OPTION_ROW('g', "grace", DURATION, "TIME", offsetof(struct cancel_options, grace_ns),
               .max = 24 * 3600 * 1000,
               .help = "time between SIGTERM and SIGKILL (default: the server's setting)"),
    OPTION_ROW('r', "reason", TEXT, "TEXT", offsetof(struct cancel_options, reason),
               .help = "reason for cancelling, stored with the job"),
    CLIENT_SOCKET_OPTION,
    {0},
};

static int cancel_exec(const struct cli_call *call, struct err *err)
{
    const struct cancel_options *o = call->options;
    int status = 0;
    json_t *body = json_object();
    if (o->reason)
        json_object_set_new(body, "reason", json_text0(o->reason));
    if (options_find(call->given, "grace"))
        json_object_set_new(body, "grace_s", json_seconds(o->grace_ns));
    for (int i = 0; i < call->argc; i++)
        if (post("cancel", o->client.socket, call->argv[i], json_incref(body), NULL, err) < 0)
            status = cli_failf(2, "cancel: %s", err->text);
    json_decref(body);
    return status;
}

const struct cli_command cmd_cancel = {
    .name = "cancel",
    .operands = "ID…",
    .summary = "cancel jobs on the server",
    .description =
        "A queued job is removed from the queue. A running job gets SIGTERM and, after the grace "
        "period, all of its remaining processes get SIGKILL; it is not restarted. `ebb wait` waits "
        "until the job has ended. The exit status is 2 if one of the jobs could not be cancelled.",
    .examples = "ebb cancel 17\n"
                "ebb cancel --grace 1m --reason 'wrong data' 17 18\n",
    .options = cancel_table,
    .options_size = sizeof(struct cancel_options),
    .exec = cancel_exec,
};

/* ---- checkpoint, rerun ---- */

static const struct option_desc checkpoint_table[] = {
    CLIENT_SOCKET_OPTION,
    {0},
};

static int checkpoint_exec(const struct cli_call *call, struct err *err)
{
    const struct client_options *o = call->options;
    return post("checkpoint", o->socket, call->argv[0], json_object(), NULL, err);
}

const struct cli_command cmd_checkpoint = {
    .name = "checkpoint",
    .operands = "ID",
    .summary = "request a checkpoint from a job on the server",
    .description = "Requests a checkpoint in the same way as the guard: over the marks socket, "
                   "by --checkpoint-signal or by --checkpoint-cmd. The job continues. `ebb "
                   "show` shows whether the checkpoint was written.",
    .options = checkpoint_table,
    .options_size = sizeof(struct client_options),
    .exec = checkpoint_exec,
};

static const struct option_desc rerun_table[] = {
    CLIENT_JSON_OPTION("print the new job as one line of JSON instead of its id"),
    CLIENT_SOCKET_OPTION,
    {0},
};

static int rerun_exec(const struct cli_call *call, struct err *err)
{
    const struct client_options *o = call->options;
    json_t *job;
    struct buf text = {0};
    int r = post("rerun", o->socket, call->argv[0], json_object(), &job, err);
    if (r < 0)
        return r;
    if (!o->json)
        buf_printf(&text, "%lld\n", (long long)json_integer_value(json_object_get(job, "id")));
    r = o->json ? cli_print_json_line(job) : cli_print(&text);
    json_decref(job);
    return r;
}

const struct cli_command cmd_rerun = {
    .name = "rerun",
    .operands = "ID",
    .summary = "submit an earlier job to the server again",
    .description = "Submits a new job with the same request as an earlier one, and prints its "
                   "id.",
    .options = rerun_table,
    .options_size = sizeof(struct client_options),
    .exec = rerun_exec,
};
