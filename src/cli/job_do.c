/* `ebb cancel`, `checkpoint`, `rerun` and `wait`: act on jobs of the server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/json.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/job_wait.h"
#include "present/jobs.h"

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
               .help = "time between SIGTERM and the kill (default: the server's setting)"),
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
    .summary = "cancel jobs of the server",
    .description = "A queued job is removed from the queue. A running job gets SIGTERM and, "
                   "after the grace period, all of its remaining processes get SIGKILL; it is "
                   "not restarted. `ebb wait` waits for its end. The exit status is 2 if one of "
                   "the jobs could not be cancelled.",
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
    .summary = "request a checkpoint from a job of the server",
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
    .summary = "submit a job of the server again",
    .description = "Submits a new job with the same request as an earlier one, and prints its "
                   "id.",
    .options = rerun_table,
    .options_size = sizeof(struct client_options),
    .exec = rerun_exec,
};

/* ---- wait ---- */

struct wait_options {
    struct client_options client;
    uint64_t timeout_ns;
    bool quiet;
};

static const struct option_desc wait_table[] = {
    OPTION_ROW('t', "timeout", DURATION, "TIME", offsetof(struct wait_options, timeout_ns),
               .help = "wait at most this long; after that the exit status is 3"),
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

/* Waits for one job. Returns 0 and the status of that job in *RET_STATUS, our own exit status, or
 * -errno. */
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
    .summary = "wait for jobs of the server to end",
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
