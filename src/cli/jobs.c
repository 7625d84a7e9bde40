/* `ebb jobs` and `ebb show`: list the jobs on the server, or show one of them or a run. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/run_end.h"
#include "present/document.h"
#include "present/jobs.h"

enum { PAGE = 500, ENDED_SHOWN = 20, QUERY_MAX = 1024, JOBS_MAX = 100000, WIDE = 10000 };

struct jobs_options {
    struct client_options client;
    const char *state, *name;
    bool all;
};

static const struct option_desc jobs_table[] = {
    OPTION_ROW('s', "state", TEXT, "STATE", offsetof(struct jobs_options, state),
               .help = "only jobs in these states, separated by commas: queued, starting, running, "
                       "checkpointing, stopping, succeeded, failed, cancelled, lost, or the groups "
                       "active and ended"),
    OPTION_ROW('n', "name", TEXT, "NAME", offsetof(struct jobs_options, name),
               .help = "only jobs with this name"),
    OPTION_ROW('a', "all", FLAG, NULL, offsetof(struct jobs_options, all),
               .help =
                   "all jobs (default: those that have not ended, and the newest 20 that have)"),
    CLIENT_JSON_OPTION("print each job as one line of JSON"),
    CLIENT_SOCKET_OPTION,
    {0},
};

static double now_s(void)
{
    return (double)clock_wall_ns() / (double)NS_PER_S;
}

/* ---- a list ---- */

static int query(const struct jobs_options *o, const char *state, int64_t before, unsigned limit,
                 char ret[QUERY_MAX], struct err *err)
{
    char encoded[QUERY_MAX / 2];
    int n = snprintf(ret, QUERY_MAX, "/api/v1/jobs?limit=%u", limit);
    if (before)
        n += snprintf(ret + n, QUERY_MAX - (size_t)n, "&before=%lld", (long long)before);
    if (state) {
        if (!client_encode(state, encoded, QUERY_MAX / 4))
            return err_set(err, -EINVAL, "--state: \"%.50s…\" is too long", state);
        n += snprintf(ret + n, QUERY_MAX - (size_t)n, "&state=%s", encoded);
    }
    if (o->name) {
        if (!client_encode(o->name, encoded, sizeof encoded))
            return err_set(err, -EINVAL, "--name: \"%.50s…\" is too long", o->name);
        snprintf(ret + n, QUERY_MAX - (size_t)n, "&name=%s", encoded);
    }
    return 0;
}

/* Adds at most MOST jobs in STATE (NULL for any) to LIST, newest first. */
static int jobs_gather(const struct jobs_options *o, const char *state, size_t most, json_t *list,
                       struct err *err)
{
    int64_t before = 0;
    for (size_t got = 0; got < most;) {
        char path[QUERY_MAX];
        size_t left = most - got;
        json_t *doc = NULL;
        int r = query(o, state, before, (unsigned)(left < PAGE ? left : PAGE), path, err);
        if (r == 0)
            r = client_json(o->client.socket, "GET", path, NULL, &doc, err);
        if (r < 0)
            return r;
        const json_t *jobs = json_object_get(doc, "jobs");
        size_t count = json_array_size(jobs);
        int64_t last =
            json_integer_value(json_object_get(json_array_get(jobs, count ? count - 1 : 0), "id"));
        bool has_more =
            count && json_is_true(json_object_get(doc, "more")) && (!before || last < before);
        json_array_extend(list, (json_t *)(uintptr_t)jobs);
        json_decref(doc);
        got += count;
        before = last;
        if (!has_more)
            break;
    }
    return 0;
}

/* Prints D at the terminal's width, or PIPE_WIDTH columns wide if standard output is not a
 * terminal. */
static int print_doc(struct doc *d, size_t pipe_width)
{
    struct buf text = {0};
    struct winsize size;
    size_t width = pipe_width;
    if (isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col)
        width = size.ws_col < 40 ? 40 : size.ws_col;
    doc_terminal(&text, d, cli_colour(STDOUT_FILENO), width);
    doc_fini(d);
    return cli_print(&text);
}

static int print_list(const struct jobs_options *o, const json_t *list)
{
    struct doc doc = {0};
    size_t i;
    json_t *job;
    if (o->client.json) {
        json_array_foreach((json_t *)(uintptr_t)list, i, job)
        {
            int status = cli_print_json_line(job);
            if (status)
                return status;
        }
        return 0;
    }
    if (json_array_size(list) == 0) {
        cli_say("jobs: %s", o->state || o->name ? "no job matches" : "no jobs");
        return 0;
    }
    jobs_doc(&doc, list, now_s());
    return print_doc(&doc, WIDE);
}

static int jobs_exec(const struct cli_call *call, struct err *err)
{
    const struct jobs_options *o = call->options;
    json_t *list = json_array();
    bool is_part = !o->state && !o->all;
    int r = jobs_gather(o, is_part ? "active" : o->state, JOBS_MAX, list, err);
    if (r == 0 && is_part)
        r = jobs_gather(o, "ended", ENDED_SHOWN, list, err);
    if (r == 0)
        r = print_list(o, list);
    json_decref(list);
    return r;
}

const struct cli_command cmd_jobs = {
    .name = "jobs",
    .operands = "",
    .summary = "list the jobs on the server",
    .description =
        "Prints a line for each job, newest first: its memory now and at its peak, the verdict, "
        "its progress, how long it has been running or queued, and the reason for its state. "
        "Columns that do not fit on the terminal are omitted; a pipe gets all of them.",
    .examples = "ebb jobs\n"
                "ebb jobs --state failed,lost --json | jq .cause\n",
    .options = jobs_table,
    .options_size = sizeof(struct jobs_options),
    .exec = jobs_exec,
};

/* ---- one job ---- */

static const struct option_desc show_table[] = {
    CLIENT_JSON_OPTION(
        "print the run (docs/reference/run.schema.json) or the job (api.md) as JSON"),
    CLIENT_SOCKET_OPTION,
    {0},
};

static int show_exec(const struct cli_call *call, struct err *err)
{
    const struct client_options *o = call->options;
    char path[64];
    int64_t id;
    json_t *job = NULL;
    if (call->argv[0][strspn(call->argv[0], "0123456789")])
        return run_end_show(call->argv[0], o->json, err);
    int r = client_parse_id(call->argv[0], &id, err);
    if (r < 0)
        return r;
    snprintf(path, sizeof path, "/api/v1/jobs/%lld", (long long)id);
    r = client_json(o->socket, "GET", path, NULL, &job, err);
    if (r < 0)
        return r;
    struct doc doc = {0};
    if (!o->json)
        job_doc(&doc, job, now_s());
    r = o->json ? cli_print_json_line(job) : print_doc(&doc, 0);
    json_decref(job);
    return r;
}

const struct cli_command cmd_show = {
    .name = "show",
    .operands = "[RUN_DIR|FILE.ebb|ID]",
    .summary = "show the full summary of a run, or a job on the server",
    .description =
        "For a run (default: the latest): the verdict with its evidence, growing call sites, "
        "memory, processes, GPUs, actions of the guard, the diagnosis, and ebb's own cost. `ebb "
        "run` prints a short form of this summary when the job ends.\n"
        "\n"
        "For a job on the server, given by its id: its command, times, memory, progress, verdict "
        "and every change of its state.",
    .examples = "ebb show\n"
                "ebb show ebb-runs/train-20260131-120000\n"
                "ebb show 17\n"
                "ebb show --json | jq -r '.diagnosis.hypotheses[0].code'\n"
                "ebb show --json 17 | jq .memory.peak_bytes\n",
    .options = show_table,
    .options_size = sizeof(struct client_options),
    .exec = show_exec,
};
