/* `ebb submit`: sends a job to the server. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/number.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/job_wait.h"
#include "options/run_options.h"
#include "present/jobs.h"

struct submit_options {
    struct run_options run;
    struct client_options client;
    const char *name, *cwd;
    struct quantity_size memory;
    struct option_texts env, after, slurm;
    int64_t gpus, priority;
    bool wait, follow;
};
_Static_assert(offsetof(struct submit_options, run) == 0,
               "the offsets in run_options_table are relative to the first member of the struct");

#define AT(field) offsetof(struct submit_options, field)

static const struct option_desc submit_table[] = {
    OPTION_ROW('n', "name", TEXT, "NAME", AT(name),
               .help =
                   "name of the job (default: the command's); the server learns from earlier runs "
                   "with that name how much memory to reserve"),
    OPTION_ROW('m', "memory", SIZE, "SIZE", AT(memory),
               .help = "memory to reserve: the job starts when that much is free (default: "
                       "--limit, or the peak of earlier runs)"),
    OPTION_ROW('g', "gpu", INT, "N", AT(gpus), .max = 64,
               .help = "number of GPUs; CUDA_VISIBLE_DEVICES lists those assigned (default: "
                       "none)"),
    OPTION_ROW('C', "cwd", PATH, "DIR", AT(cwd),
               .help = "working folder of the job (default: the current one)"),
    OPTION_ROW(
        'e', "env", TEXTS, "K=V|K", AT(env),
        .help =
            "environment variable of the job; without =V, the value is taken from the environment "
            "of ebb submit; can be repeated. All other variables come from the server's "
            "environment"),
    OPTION_ROW('p', "priority", INT, "N", AT(priority), .min = -100, .max = 100,
               .help = "jobs with a higher priority start first: -100 to 100 (default: 0)"),
    OPTION_ROW('a', "after", TEXTS, "ID", AT(after),
               .help = "job that must succeed before this one starts; if it fails, this one is "
                       "cancelled; can be repeated"),
    OPTION_ROW(0, "slurm", TEXTS, "NAME=VALUE", AT(slurm),
               .help = "sbatch option, such as partition=gpu or time=4h, for a server that submits "
                       "to Slurm; can be repeated"),
    OPTION_ROW('w', "wait", FLAG, NULL, AT(wait),
               .help = "wait until the job has ended, and exit with the same status as `ebb wait`"),
    OPTION_ROW('f', "follow", FLAG, NULL, AT(follow),
               .help = "print the job's output until the job ends, and exit with the same status "
                       "as `ebb wait`; the job's id goes to standard error"),
    OPTION_ROW(0, "json", FLAG, NULL, AT(client.json),
               .help = "print the job as one line of JSON instead of its id"),
    OPTION_ROW(0, "socket", PATH, "PATH", AT(client.socket),
               .help = "the server's socket (default: $EBB_SERVER, or your own server's)"),
    {0},
};

/* ---- the request ---- */

/* Converts TEXT to a JSON string. Fails if TEXT is not UTF-8, because JSON cannot contain other
 * bytes. */
static json_t *submit_string(const char *what, const char *text, struct err *err)
{
    json_t *s = json_string(text);
    if (!s)
        err_set(err, -EINVAL, "%s: \"%.100s\" is not UTF-8", what, text);
    return s;
}

static int submit_put_text(json_t *o, const char *key, const char *text, struct err *err)
{
    json_t *s = submit_string(key, text, err);
    return s ? json_object_set_new(o, key, s) : -EINVAL;
}

/* Adds an object under KEY with the pairs "NAME=VALUE" in TEXTS. A text without "=" is passed to
 * BARE, which adds or refuses it. */
static int submit_put_pairs(json_t *request, const char *key, const struct option_texts *texts,
                            int (*bare)(json_t *o, const char *text, struct err *err),
                            struct err *err)
{
    json_t *o = json_object();
    int r = json_object_set_new(request, key, o);
    for (size_t i = 0; i < texts->count && r == 0; i++) {
        const char *text = texts->v[i], *equals = strchr(text, '=');
        if (!equals || equals == text) {
            r = bare(o, text, err);
            continue;
        }
        AUTO_FREE char *name = strndup(text, (size_t)(equals - text));
        r = name ? submit_put_text(o, name, equals + 1, err) : -ENOMEM;
    }
    return r;
}

static int submit_put_variable(json_t *o, const char *text, struct err *err)
{
    const char *value = *text != '=' ? getenv(text) : NULL;
    return value
               ? submit_put_text(o, text, value, err)
               : err_set(err, -EINVAL,
                         "--env: \"%.100s\" is neither K=V nor the name of a variable that is set",
                         text);
}

static int submit_put_flag(json_t *o, const char *text, struct err *err)
{
    return *text != '-' && *text != '='
               ? json_object_set_new(o, text, json_true())
               : err_set(err, -EINVAL, "--slurm: \"%.100s\" is not NAME=VALUE; omit the dashes",
                         text);
}

static int submit_put_after(json_t *request, const struct option_texts *after, struct err *err)
{
    json_t *list = json_array();
    json_object_set_new(request, "after", list);
    for (size_t i = 0; i < after->count; i++) {
        int64_t id;
        if (number_parse_i64(after->v[i], strlen(after->v[i]), &id) < 0 || id <= 0)
            return err_set(err, -EINVAL, "--after: invalid job id \"%.100s\"", after->v[i]);
        json_array_append_new(list, json_integer(id));
    }
    return 0;
}

static int submit_put_command(json_t *request, const struct cli_call *call, struct err *err)
{
    json_t *list = json_array();
    json_object_set_new(request, "command", list);
    for (int i = 0; i < call->argc; i++) {
        json_t *word = submit_string("the command", call->argv[i], err);
        if (!word)
            return -EINVAL;
        json_array_append_new(list, word);
    }
    return 0;
}

static int submit_put_cwd(json_t *request, const struct submit_options *o, struct err *err)
{
    char *path = o->cwd ? realpath(o->cwd, NULL) : getcwd(NULL, 0);
    if (!path)
        return err_set(err, -errno, "--cwd: %.200s: %s", o->cwd ? o->cwd : "this folder",
                       strerror(errno));
    int r = submit_put_text(request, "cwd", path, err);
    free(path);
    return r;
}

static int submit_build(json_t *request, const struct cli_call *call, struct err *err)
{
    struct submit_options *o = call->options;
    const struct option_given *memory = options_find(call->given, "memory");
    int r = run_options_complete(&o->run, call->given, err);
    run_options_fini(&o->run);
    if (r == 0)
        r = submit_put_command(request, call, err);
    if (r == 0)
        r = submit_put_cwd(request, o, err);
    if (r == 0 && o->name)
        r = submit_put_text(request, "name", o->name, err);
    if (r == 0 && memory)
        r = options_put_json(request, memory, err);
    if (r == 0)
        r = submit_put_pairs(request, "env", &o->env, submit_put_variable, err);
    if (r == 0)
        r = submit_put_after(request, &o->after, err);
    if (r == 0 && o->slurm.count)
        r = submit_put_pairs(request, "slurm", &o->slurm, submit_put_flag, err);
    if (r == 0)
        r = run_options_put_request(request, call->given, err);
    if (o->gpus)
        json_object_set_new(request, "gpus", json_integer(o->gpus));
    if (o->priority)
        json_object_set_new(request, "priority", json_integer(o->priority));
    return r;
}

/* ---- the answer ---- */

static int submit_print_id(const struct submit_options *o, const json_t *job, int64_t id)
{
    struct buf text = {0};
    if (o->client.json)
        return cli_print_json_line(job);
    if (o->follow) {
        cli_say("job %lld", (long long)id);
        return 0;
    }
    buf_printf(&text, "%lld\n", (long long)id);
    return cli_print(&text);
}

static int submit_stay(const struct submit_options *o, int64_t id, struct err *err)
{
    json_t *job;
    struct buf text = {0};
    int r = o->follow ? job_print_log(o->client.socket, id, 0, true, err) : 0;
    if (r == 0)
        r = job_wait(o->client.socket, id, UINT64_MAX, &job, err);
    if (r)
        return r;
    int status = job_exit_status(job);
    job_end_text(&text, job);
    if (status)
        cli_say("job %lld %s", (long long)id, buf_str(&text));
    buf_fini(&text);
    json_decref(job);
    return status;
}

static int submit_exec(const struct cli_call *call, struct err *err)
{
    const struct submit_options *o = call->options;
    if (call->argc < 1)
        return err_set(err, -EINVAL,
                       "command missing; write it after --, as in: ebb submit -- python train.py");
    json_t *request = json_object(), *job = NULL;
    int r = submit_build(request, call, err);
    if (r == 0)
        r = client_json(o->client.socket, "POST", "/api/v1/jobs", request, &job, err);
    json_decref(request);
    if (r < 0)
        return r;
    int64_t id = json_integer_value(json_object_get(job, "id"));
    r = submit_print_id(o, job, id);
    json_decref(job);
    return r == 0 && (o->wait || o->follow) ? submit_stay(o, id, err) : r;
}

const struct cli_command cmd_submit = {
    .name = "submit",
    .operands = "-- CMD [ARG…]",
    .summary = "submit a job to the server",
    .description =
        "Puts CMD into the queue of `ebb serve` and prints the job's id. The job runs as the "
        "server's user and in the current folder. As with `ebb run`, it is recorded, guarded, "
        "and isolated from other jobs.\n"
        "\n"
        "With --wait or --follow the exit status is that of `ebb wait`; otherwise 0 if the job "
        "was accepted and is on disk, else 2.",
    .examples = "ebb submit --memory 24G --gpu 1 -- python train.py --epochs 3\n"
                "ebb submit --limit 80% --restart --resume-args '--resume last' -- ./train\n"
                "ebb submit --after 17 --env SEED=3 -- python eval.py\n",
    .options = submit_table,
    .more_options = run_options_table,
    .options_size = sizeof(struct submit_options),
    .stop_at_operand = true,
    .exec = submit_exec,
};
