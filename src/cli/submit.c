/* `ebb submit`: a job for the server. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/number.h"
#include "cli/cli.h"
#include "cli/client.h"
#include "cli/job_wait.h"
#include "cli/run_guard.h"
#include "present/jobs.h"

struct submit_options {
    struct run_guard_options guard;
    struct client_options client;
    const char *name, *cwd;
    struct quantity_size memory;
    struct cli_texts env, after;
    uint64_t interval_ns;
    int64_t gpus, priority;
    const char *heap_interval;
    bool no_unique, pss, no_shim, no_heap, no_heap_python;
    bool wait, follow;
};
_Static_assert(offsetof(struct submit_options, guard) == 0, "run_guard_table is of this place");

#define AT(field) .offset = offsetof(struct submit_options, field)

/* Where in the table those are that are options of `ebb run`. */
enum { FIRST_OF_RUN = 11 };

static const struct cli_option submit_table[] = {
    {.name = "name",
     .letter = 'n',
     .type = CLI_TEXT,
     .arg = "NAME",
     AT(name),
     .help = "name of the job; without it the command's. What runs of one name needed is what the "
             "next is expected to need"},
    {.name = "memory",
     .letter = 'm',
     .type = CLI_SIZE,
     .arg = "SIZE",
     AT(memory),
     .help = "memory it needs at most: it starts when that is free; without it --limit, or what "
             "was learned"},
    {.name = "gpu",
     .letter = 'g',
     .type = CLI_INT,
     .arg = "N",
     .max = 64,
     AT(gpus),
     .help = "GPUs it needs; which it gets is in CUDA_VISIBLE_DEVICES; without this it sees none"},
    {.name = "cwd",
     .letter = 'C',
     .type = CLI_PATH,
     .arg = "DIR",
     AT(cwd),
     .help = "folder to run it in; without it this one"},
    {.name = "env",
     .letter = 'e',
     .type = CLI_TEXTS,
     .arg = "K=V|K",
     AT(env),
     .help = "a variable for it, or K alone as it is here; may be given several times. The rest is "
             "the server's environment"},
    {.name = "priority",
     .letter = 'p',
     .type = CLI_INT,
     .arg = "N",
     .min = -100,
     .max = 100,
     AT(priority),
     .help = "before jobs of a lower one: -100 to 100, default 0"},
    {.name = "after",
     .letter = 'a',
     .type = CLI_TEXTS,
     .arg = "ID",
     AT(after),
     .help =
         "not before this job has succeeded, and not at all if it does not; may be given several "
         "times"},
    {.name = "wait",
     .letter = 'w',
     .type = CLI_FLAG,
     AT(wait),
     .help = "wait for its end, and exit as `ebb wait` does"},
    {.name = "follow",
     .letter = 'f',
     .type = CLI_FLAG,
     AT(follow),
     .help = "show its output until its end, and exit as `ebb wait` does; its number goes to "
             "standard error"},
    {.name = "json",
     .type = CLI_FLAG,
     AT(client.json),
     .help = "print the job as one line of JSON instead of its number"},
    {.name = "socket",
     .type = CLI_PATH,
     .arg = "PATH",
     AT(client.socket),
     .help = "the server's socket; without it $EBB_SERVER, or that of your own server"},
    [FIRST_OF_RUN] = {.name = "interval",
                      .letter = 'i',
                      .type = CLI_DURATION,
                      .arg = "TIME",
                      .min = 50,
                      .max = 3600000,
                      AT(interval_ns),
                      .help = "look at the job this often; without it as the server is set"},
    {.name = "no-unique", .type = CLI_FLAG, AT(no_unique), .help = "do not read unique memory"},
    {.name = "pss", .type = CLI_FLAG, AT(pss), .help = "also read PSS once a minute"},
    {.name = "no-shim", .type = CLI_FLAG, AT(no_shim), .help = "leave Python alone"},
    {.name = "no-heap", .type = CLI_FLAG, AT(no_heap), .help = "do not profile the heap"},
    {.name = "heap-interval",
     .type = CLI_TEXT,
     .arg = "SIZE",
     AT(heap_interval),
     .help = "sample the heap once in this many bytes"},
    {.name = "no-heap-python",
     .type = CLI_FLAG,
     AT(no_heap_python),
     .help = "leave Python's own allocator of small objects alone"},
    {0},
};

/* ---- the request ---- */

/* JSON has no bytes that are not UTF-8, and the job would get others than were given. */
static json_t *string_of(const char *what, const char *text, struct err *err)
{
    json_t *s = json_string(text);
    if (!s)
        err_set(err, -EINVAL, "%s: \"%.100s\" is not UTF-8", what, text);
    return s;
}

static int put_text(json_t *o, const char *key, const char *text, struct err *err)
{
    json_t *s = string_of(key, text, err);
    return s ? json_object_set_new(o, key, s) : -EINVAL;
}

static int put_env(json_t *request, const struct cli_texts *env, struct err *err)
{
    json_t *o = json_object();
    json_object_set_new(request, "env", o);
    for (size_t i = 0; i < env->count; i++) {
        const char *text = env->v[i], *equals = strchr(text, '=');
        char *name = strndup(text, equals ? (size_t)(equals - text) : strlen(text));
        const char *value = equals ? equals + 1 : name ? getenv(name) : NULL;
        int r = value && *name ? put_text(o, name, value, err)
                               : err_set(err, -EINVAL,
                                         "--env: \"%.100s\" is neither K=V nor a variable that is "
                                         "set here",
                                         text);
        free(name);
        if (r < 0)
            return r;
    }
    return 0;
}

static int put_after(json_t *request, const struct cli_texts *after, struct err *err)
{
    json_t *list = json_array();
    json_object_set_new(request, "after", list);
    for (size_t i = 0; i < after->count; i++) {
        int64_t id;
        if (number_parse_i64(after->v[i], strlen(after->v[i]), &id) < 0 || id <= 0)
            return err_set(err, -EINVAL, "--after: \"%.100s\" is no job's number", after->v[i]);
        json_array_append_new(list, json_integer(id));
    }
    return 0;
}

static bool is_of_run(const struct cli_option *o)
{
    return o >= submit_table + FIRST_OF_RUN &&
           o < submit_table + sizeof submit_table / sizeof *submit_table;
}

static bool is_guards(const struct cli_option *o)
{
    for (const struct cli_option *g = run_guard_table; g->name; g++)
        if (g == o)
            return true;
    return false;
}

/* The server runs `ebb run` with these, as they are written here; it checks them itself. */
static int put_options(json_t *request, const struct cli_call *call, struct err *err)
{
    json_t *options = json_object();
    json_object_set_new(request, "options", options);
    for (size_t i = 0; i < call->given_count; i++) {
        const struct cli_option *o = call->given[i];
        const char *text = call->given_text[i];
        int r = 0;
        if (!is_guards(o) && !is_of_run(o))
            continue;
        if (strcmp(o->name, "config") == 0)
            return err_set(err, -EINVAL, "--config is not for jobs of a server; give the options");
        if (strcmp(o->name, "limit") == 0)
            r = put_text(request, "limit", text, err);
        else if (o->type == CLI_FLAG)
            json_object_set_new(options, o->name, json_true());
        else
            r = put_text(options, o->name, text, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static const char *text_given(const struct cli_call *call, const char *name)
{
    for (size_t i = 0; i < call->given_count; i++)
        if (strcmp(call->given[i]->name, name) == 0)
            return call->given_text[i];
    return NULL;
}

static int put_command(json_t *request, const struct cli_call *call, struct err *err)
{
    json_t *list = json_array();
    json_object_set_new(request, "command", list);
    for (int i = 0; i < call->argc; i++) {
        json_t *word = string_of("the command", call->argv[i], err);
        if (!word)
            return -EINVAL;
        json_array_append_new(list, word);
    }
    return 0;
}

static int put_cwd(json_t *request, const struct submit_options *o, struct err *err)
{
    char *path = o->cwd ? realpath(o->cwd, NULL) : getcwd(NULL, 0);
    if (!path)
        return err_set(err, -errno, "--cwd: %.200s: %s", o->cwd ? o->cwd : "this folder",
                       strerror(errno));
    int r = put_text(request, "cwd", path, err);
    free(path);
    return r;
}

static int build(json_t *request, const struct cli_call *call, struct err *err)
{
    const struct submit_options *o = call->options;
    const char *memory = text_given(call, "memory");
    int r = put_command(request, call, err);
    if (r == 0)
        r = put_cwd(request, o, err);
    if (r == 0 && o->name)
        r = put_text(request, "name", o->name, err);
    if (r == 0 && memory)
        r = put_text(request, "memory", memory, err);
    if (r == 0)
        r = put_env(request, &o->env, err);
    if (r == 0)
        r = put_after(request, &o->after, err);
    if (r == 0)
        r = put_options(request, call, err);
    if (o->gpus)
        json_object_set_new(request, "gpus", json_integer(o->gpus));
    if (o->priority)
        json_object_set_new(request, "priority", json_integer(o->priority));
    return r;
}

/* ---- the answer ---- */

static int say_id(const struct submit_options *o, const json_t *job, int64_t id)
{
    struct buf text = {0};
    if (o->client.json)
        return client_print_json(job);
    if (o->follow) {
        cli_say("job %lld", (long long)id);
        return 0;
    }
    buf_printf(&text, "%lld\n", (long long)id);
    int status = cli_print(&text);
    buf_fini(&text);
    return status;
}

static int stay(const struct submit_options *o, int64_t id)
{
    json_t *job;
    struct buf text = {0};
    int status = o->follow ? job_print_log("submit", o->client.socket, id, 0, true) : 0;
    if (status == 0)
        status = job_wait("submit", o->client.socket, id, UINT64_MAX, &job);
    if (status)
        return status;
    status = job_exit_status(job);
    job_end_text(&text, job);
    if (status)
        cli_say("job %lld %s", (long long)id, buf_str(&text));
    buf_fini(&text);
    json_decref(job);
    return status;
}

static int submit_exec(const struct cli_call *call)
{
    const struct submit_options *o = call->options;
    struct err err = {""};
    json_t *request = json_object(), *job = NULL;
    int status;
    if (call->argc < 1)
        status = cli_failf(2, "submit: which command? Write it behind --, like: ebb submit -- "
                              "python train.py");
    else if (build(request, call, &err) < 0)
        status = cli_failf(2, "submit: %s", err.text);
    else
        status = client_json("submit",
                             &(const struct client_request){.socket = o->client.socket,
                                                            .method = "POST",
                                                            .path = "/api/v1/jobs",
                                                            .body = request},
                             &job);
    json_decref(request);
    if (status)
        return status;
    int64_t id = json_integer_value(json_object_get(job, "id"));
    status = say_id(o, job, id);
    json_decref(job);
    return status == 0 && (o->wait || o->follow) ? stay(o, id) : status;
}

const struct cli_command cmd_submit = {
    .name = "submit",
    .operands = "-- CMD [ARG…]",
    .summary = "give the server a job to run",
    .description =
        "Puts CMD into the queue of `ebb serve` and prints the job's number. It runs as the "
        "server's user, in this folder, as `ebb run` would run it: recorded, guarded, isolated "
        "from the others. The options of the guard are those of `ebb run`; --config is not among "
        "them.\n\n"
        "With --wait or --follow the exit status is that of `ebb wait`; else 0 once the job is "
        "accepted, which means that it is on disk, and 2 if it is not.",
    .examples = "ebb submit --memory 24G --gpu 1 -- python train.py --epochs 3\n"
                "ebb submit --limit 80% --restart --resume-args '--resume last' -- ./train\n"
                "ebb submit --after 17 --env SEED=3 -- python eval.py\n",
    .options = submit_table,
    .more_options = run_guard_table,
    .options_size = sizeof(struct submit_options),
    .usage_status = 2,
    .stop_at_operand = true,
    .exec = submit_exec,
};
