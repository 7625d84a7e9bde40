/* Builds the command line and the environment of `ebb run` from a request. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "server/jobs/spec.h"
#include "trace/rundir.h"

static const char visible[] = "CUDA_VISIBLE_DEVICES";

void launch_args_add(struct launch_args *t, const char *text)
{
    buf_add(&t->bytes, text, strlen(text) + 1);
    t->count++;
}

void launch_args_addf(struct launch_args *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(&t->bytes, fmt, ap);
    va_end(ap);
    buf_add_byte(&t->bytes, 0);
    t->count++;
}

/* Builds a list in one allocation: the pointers, followed by the strings. */
static char **list_of(struct launch_args *t)
{
    size_t head = (t->count + 1) * sizeof(char *);
    char **list = t->bytes.failed ? NULL : malloc(head + t->bytes.len);
    if (list) {
        char *at = (char *)list + head;
        if (t->bytes.len)
            memcpy(at, t->bytes.data, t->bytes.len);
        for (size_t i = 0; i < t->count; i++, at += strlen(at) + 1)
            list[i] = at;
        list[t->count] = NULL;
    }
    buf_fini(&t->bytes);
    return list;
}

/* Builds the arguments, which begin with HEAD. Takes ownership of HEAD. */
static char **make_argv(const struct job_spec *spec, struct launch_args *head, const char *program,
                        const struct job_place *place)
{
    struct launch_args t = {0};
    json_t *value;
    size_t i;
    if (head)
        t = *head;
    launch_args_add(&t, program);
    launch_args_add(&t, "run");
    if (place->lock_fd >= 0) {
        launch_args_add(&t, "--detached");
        launch_args_addf(&t, "--lock-fd=%d", place->lock_fd);
    } else {
        launch_args_add(&t, "--folder-control");
    }
    launch_args_addf(&t, "--folder-id=%s", place->folder_id);
    launch_args_addf(&t, "--run-dir=%s", place->run_dir);
    launch_args_addf(&t, "--name=%s", spec->name);
    if (place->interval_ns && !options_find(&spec->options, "interval"))
        launch_args_addf(&t, "--interval=%" PRIu64 "ms", place->interval_ns / NS_PER_MS);
    if (place->log_bytes)
        launch_args_addf(&t, "--log-max=%" PRIu64, place->log_bytes);
    t.count += options_put_argv(&t.bytes, &spec->options);
    launch_args_add(&t, "--");
    json_array_foreach(json_object_get(spec->doc, "command"), i, value)
    {
        launch_args_add(&t, json_string_value(value));
    }
    return list_of(&t);
}

static bool is_named(const char *variable, const char *name)
{
    size_t n = strlen(name);
    return strncmp(variable, name, n) == 0 && variable[n] == '=';
}

/* True if a variable of the server is passed on to the job. Variables of ebb and variables that the
 * request sets are not passed on. */
static bool is_passed_on(const char *variable, const json_t *env, bool is_for_slurm)
{
    size_t n = strcspn(variable, "=");
    char name[256];
    if (strncmp(variable, "EBB_", 4) == 0 || is_named(variable, visible))
        return false;
    /* if the server itself runs in a Slurm job, its SLURM_ variables describe that job, not the new
     * one */
    if (is_for_slurm && strncmp(variable, "SLURM_", 6) == 0 && !is_named(variable, "SLURM_CONF"))
        return false;
    if (n >= sizeof name)
        return true;
    memcpy(name, variable, n);
    name[n] = '\0';
    return !json_object_get(env, name);
}

static char **make_env(const struct job_spec *spec, const char *gpus)
{
    json_t *env = json_object_get(spec->doc, "env");
    struct launch_args t = {0};
    const char *name;
    json_t *value;
    for (char **v = environ; v && *v; v++) {
        if (is_passed_on(*v, env, !gpus))
            launch_args_add(&t, *v);
    }
    json_object_foreach(env, name, value)
    {
        if (gpus && gpus[0] && strcmp(name, visible) == 0)
            continue;
        launch_args_addf(&t, "%s=%s", name, json_string_value(value));
    }
    if (gpus && (gpus[0] || !json_object_get(env, visible)))
        launch_args_addf(&t, "%s=%s", visible, gpus);
    return list_of(&t);
}

int job_spec_launch(const struct job_spec *spec, struct launch_args *head, const char *program,
                    const struct job_place *place, const char *gpus, struct job_launch *ret)
{
    struct job_launch launch = {
        .argv = make_argv(spec, head, program, place),
        .env = make_env(spec, gpus),
    };
    if (!launch.argv || !launch.env) {
        job_launch_fini(&launch);
        return -ENOMEM;
    }
    *ret = launch;
    return 0;
}

void job_launch_fini(struct job_launch *launch)
{
    free(launch->argv);
    free(launch->env);
    *launch = (struct job_launch){0};
}

void job_spec_folder(int64_t id, const char *name, char ret[JOB_FOLDER_MAX])
{
    char clean[RUNDIR_NAME_MAX + 1];
    rundir_clean_name(name, clean);
    snprintf(ret, JOB_FOLDER_MAX, "%" PRId64 "-%s", id, clean);
}
