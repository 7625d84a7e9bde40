/* Options of a request: parsed as `ebb run` would parse them, before the job is taken in. */
#include "cli/serve_job.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "cli/cli.h"
#include "cli/run_guard.h"

/* Of `ebb run`'s own options those about the recording; of the guard's all but two. */
static const char *const recording[] = {"interval", "no-unique",     "pss",           "no-shim",
                                        "no-heap",  "heap-interval", "no-heap-python"};
static const char *const not_guards[] = {"config", "limit"};

enum { RECORDING = sizeof(recording) / sizeof(recording[0]), NOT_GUARDS = 2, WORD_MAX = 8192 };

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(name, names[i]) == 0)
            return true;
    }
    return false;
}

static const struct cli_option *find(const char *name)
{
    for (const struct cli_option *o = cmd_run.options; o->name; o++) {
        if (strcmp(o->name, name) == 0)
            return is_among(name, recording, RECORDING) ? o : NULL;
    }
    for (const struct cli_option *o = run_guard_table; o->name; o++) {
        if (strcmp(o->name, name) == 0)
            return is_among(name, not_guards, NOT_GUARDS) ? NULL : o;
    }
    return NULL;
}

static int unknown(const char *name, struct err *err)
{
    const char *names[CLI_OPTIONS_MAX];
    size_t count = 0;
    for (; count < RECORDING; count++)
        names[count] = recording[count];
    for (const struct cli_option *o = run_guard_table; o->name && count < CLI_OPTIONS_MAX; o++) {
        if (!is_among(o->name, not_guards, NOT_GUARDS))
            names[count++] = o->name;
    }
    const char *nearest = cli_nearest(name, names, count);
    if (nearest)
        return err_set(err, -EINVAL, "options: there is no \"%.100s\"; did you mean \"%s\"?", name,
                       nearest);
    return err_set(err, -EINVAL,
                   "options: there is no \"%.100s\"; they are the options of the guard and of the "
                   "recording in `ebb help run`",
                   name);
}

/* "--name", "--name=value"; NULL with a sentence. The caller's. */
static char *word_of(const struct cli_option *o, const json_t *value, struct err *err)
{
    char *word = NULL;
    int n = -1;
    if (o->type == CLI_FLAG ? !json_is_true(value)
                            : !json_is_string(value) && !json_is_integer(value)) {
        err_set(err, -EINVAL,
                o->type == CLI_FLAG ? "options: %s takes no value; give it as true"
                                    : "options: %s must have a value, as a text",
                o->name);
        return NULL;
    }
    if (json_is_string(value) && (strlen(json_string_value(value)) != json_string_length(value) ||
                                  json_string_length(value) > WORD_MAX)) {
        err_set(err, -EINVAL, "options: the value of %s is no text that can be given", o->name);
        return NULL;
    }
    if (o->type == CLI_FLAG)
        n = asprintf(&word, "--%s", o->name);
    else if (json_is_string(value))
        n = asprintf(&word, "--%s=%s", o->name, json_string_value(value));
    else
        n = asprintf(&word, "--%s=%lld", o->name, (long long)json_integer_value(value));
    if (n < 0)
        err_set(err, -ENOMEM, "out of memory");
    return n < 0 ? NULL : word;
}

static int parse(int argc, char **argv, struct err *err)
{
    struct cli_call call = {0};
    struct run_guard guard = {0};
    int r = cli_parse(&cmd_run, argc, argv, &call, err);
    if (r == 0)
        r = run_guard_init(&guard, &call, err);
    run_guard_fini(&guard);
    cli_call_fini(&call);
    return r < 0 ? err_prefix(err, -EINVAL, "options") : 0;
}

int serve_job_check(const json_t *options, struct err *err)
{
    char run[] = "run", dashes[] = "--", command[] = "true";
    char *argv[CLI_OPTIONS_MAX + 4] = {run};
    int argc = 1, r = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)options, name, value)
    {
        const struct cli_option *o = argc <= CLI_OPTIONS_MAX ? find(name) : NULL;
        if (!o) {
            r = unknown(name, err);
            break;
        }
        if (json_is_null(value) || json_is_false(value)) /* not given */
            continue;
        argv[argc] = word_of(o, value, err);
        if (!argv[argc]) {
            r = -EINVAL;
            break;
        }
        argc++;
    }
    int words = argc;
    argv[argc++] = dashes;
    argv[argc++] = command;
    if (r == 0)
        r = parse(argc, argv, err);
    for (int i = 1; i < words; i++)
        free(argv[i]);
    return r;
}
