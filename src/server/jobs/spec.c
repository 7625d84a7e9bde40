/* Validates a job request key by key. Error messages contain the key and its value. */
#include "server/jobs/spec.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/err.h"
#include "base/json.h"
#include "base/quantity.h"
#include "base/text.h"
#include "options/run_options.h"
#include "server/jobs/plan.h"
#include "server/jobs/slurm.h"

enum { ARGS_MAX = 4096, VARIABLES_MAX = 1024, PRIORITY_MAX = 100 };

/* Arguments of the functions that read the keys of a request. */
struct spec_input {
    struct job_spec *spec;
    const char *base_cwd;
    struct err *err;
};

static bool has_nul(const json_t *text)
{
    return strlen(json_string_value(text)) != json_string_length(text);
}

static bool is_plain_text(const json_t *v)
{
    return json_is_string(v) && !has_nul(v);
}

static int spec_set(struct spec_input *in, const char *key, json_t *value)
{
    return json_object_set_new(in->spec->doc, key, value) < 0 ? -ENOMEM : 0;
}

/* ---- the keys ---- */

static int spec_read_command(struct spec_input *in, const char *key, const json_t *v)
{
    size_t bytes = 0, n = json_array_size(v);
    if (!json_is_array(v) || n == 0)
        return json_refuse(in->err, key, v,
                           "is not a list of strings like [\"python\", \"train.py\"]");
    for (size_t i = 0; i < n; i++) {
        const json_t *word = json_array_get(v, i);
        if (!is_plain_text(word))
            return json_refuse(in->err, key, word, "must be a string without NUL characters");
        bytes += json_string_length(word) + 1;
    }
    if (json_string_length(json_array_get(v, 0)) == 0)
        return json_refuse(in->err, key, v,
                           "begins with an empty string; the first string must be the program");
    if (n > ARGS_MAX || bytes > JOB_COMMAND_MAX)
        return err_set(in->err, -EINVAL,
                       "%s: too long: %zu arguments and %zu bytes in all (maximum %d arguments and "
                       "%d bytes); put long arguments into a file",
                       key, n, bytes, ARGS_MAX, JOB_COMMAND_MAX);
    return spec_set(in, key, json_deep_copy(v));
}

/* Returns the program's name. A name that is too long is truncated between two UTF-8 characters. */
static json_t *default_name(const json_t *command)
{
    const char *name = text_base_name(json_string_value(json_array_get(command, 0)));
    size_t n = strnlen(name, JOB_NAME_MAX + 1);
    if (n > JOB_NAME_MAX) {
        n = JOB_NAME_MAX;
        while (n > 0 && (name[n] & 0xC0) == 0x80)
            n--;
    }
    return json_stringn(name, n);
}

static int spec_read_name(struct spec_input *in, const char *key, const json_t *v)
{
    if (!v)
        return spec_set(in, key, default_name(json_object_get(in->spec->doc, "command")));
    if (!is_plain_text(v) || json_string_length(v) == 0 || json_string_length(v) > JOB_NAME_MAX)
        return json_refuse(in->err, key, v, "is not a string of 1 to 128 bytes");
    return spec_set(in, key, json_string(json_string_value(v)));
}

static int spec_read_cwd(struct spec_input *in, const char *key, const json_t *v)
{
    char path[PATH_MAX];
    if (v && (!is_plain_text(v) || json_string_length(v) == 0))
        return json_refuse(in->err, key, v, "is not a path");
    const char *asked = v ? json_string_value(v) : in->base_cwd;
    int n = asked[0] == '/' || !v ? snprintf(path, sizeof path, "%s", asked)
                                  : snprintf(path, sizeof path, "%s/%s", in->base_cwd, asked);
    if (n < 0 || (size_t)n >= sizeof path)
        return json_refuse(in->err, key, v, "is too long for a path");
    return spec_set(in, key, json_string(path));
}

int job_spec_check_cwd(const char *path, struct err *err)
{
    struct stat st;
    if (stat(path, &st) < 0)
        return err_set(err, -EINVAL, "cwd: cannot use folder \"%s\": %s", path, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return err_set(err, -EINVAL, "cwd: \"%s\" is not a folder", path);
    if (access(path, X_OK) < 0)
        return err_set(err, -EINVAL, "cwd: cannot enter folder \"%s\": %s", path, strerror(errno));
    return 0;
}

static int spec_read_env(struct spec_input *in, const char *key, const json_t *v)
{
    size_t bytes = 0;
    if (!v)
        return spec_set(in, key, json_object());
    if (!json_is_object(v))
        return json_refuse(in->err, key, v, "is not an object like {\"NAME\": \"value\"}");
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)v, name, value)
    {
        if (!name[0] || strchr(name, '='))
            return err_set(in->err, -EINVAL, "%s: \"%.100s\" is not a valid variable name", key,
                           name);
        if (!is_plain_text(value)) {
            char what[128];
            snprintf(what, sizeof what, "%s.%.100s", key, name);
            return json_refuse(in->err, what, value, "is not a string");
        }
        bytes += strlen(name) + json_string_length(value) + 2;
    }
    if (json_object_size(v) > VARIABLES_MAX || bytes > JOB_ENV_MAX)
        return err_set(in->err, -EINVAL,
                       "%s: too large: %zu variables and %zu bytes in all (maximum %d variables "
                       "and %d bytes)",
                       key, json_object_size(v), bytes, VARIABLES_MAX, JOB_ENV_MAX);
    return spec_set(in, key, json_deep_copy(v));
}

/* Reads "gpus" or "priority". */
static int spec_read_int(struct spec_input *in, const char *key, const json_t *v)
{
    const bool is_gpus = strcmp(key, "gpus") == 0;
    const int min = is_gpus ? 0 : -PRIORITY_MAX, max = is_gpus ? PLAN_GPUS_MAX : PRIORITY_MAX;
    json_int_t n = v ? json_integer_value(v) : 0;
    if (v && (!json_is_integer(v) || n < min || n > max)) {
        char why[64];
        snprintf(why, sizeof why, "is not a whole number from %d to %d", min, max);
        return json_refuse(in->err, key, v, why);
    }
    *(is_gpus ? &in->spec->gpus : &in->spec->priority) = (int)n;
    return spec_set(in, key, json_integer(n));
}

/* Reads "memory" or "limit": "24G" or a number of bytes; a limit can also be a percentage. */
static int spec_read_size(struct spec_input *in, const char *key, const json_t *v)
{
    char number[32];
    const char *text = json_string_value(v);
    const bool is_limit = strcmp(key, "limit") == 0;
    const char *why = is_limit ? "is not a size like \"24G\" or \"80%\""
                               : "is not a size like \"24G\" or a number of bytes";
    struct quantity_size size = {0};
    if (!v)
        return spec_set(in, key, json_null());
    if (json_is_integer(v)) {
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
        text = number;
    }
    if (!text || (json_is_string(v) && has_nul(v)) ||
        quantity_parse_size(key, text, &size, NULL) < 0 || (size.is_percent && !is_limit))
        return json_refuse(in->err, key, v, why);
    if (!size.is_percent && !in->spec->memory_from) {
        in->spec->memory_bytes = size.bytes;
        in->spec->memory_from = is_limit ? "limit" : "declared";
    }
    return spec_set(in, key, json_string(text));
}

static int spec_read_after(struct spec_input *in, const char *key, const json_t *v)
{
    struct job_spec *s = in->spec;
    if (!v)
        return spec_set(in, key, json_array());
    if (!json_is_array(v) || json_array_size(v) > JOB_AFTER_MAX)
        return json_refuse(in->err, key, v, "is not a list of at most 64 job ids like [12, 13]");
    for (size_t i = 0; i < json_array_size(v); i++) {
        const json_t *id = json_array_get(v, i);
        if (!json_is_integer(id) || json_integer_value(id) < 1)
            return json_refuse(in->err, key, id, "is not a job id");
        for (size_t k = 0; k < s->after_count; k++) {
            if (s->after[k] == json_integer_value(id))
                return json_refuse(in->err, key, v, "contains a job twice");
        }
        s->after[s->after_count++] = json_integer_value(id);
    }
    return spec_set(in, key, json_deep_copy(v));
}

static int spec_read_options(struct spec_input *in, const char *key, const json_t *v)
{
    size_t bytes = 0;
    const char *name;
    json_t *value;
    if (v && !json_is_object(v))
        return json_refuse(in->err, key, v, "is not an object like {\"restart\": true}");
    json_object_foreach((json_t *)(uintptr_t)v, name, value)
    {
        bytes += strlen(name) + json_string_length(value);
    }
    if (bytes > JOB_OPTIONS_MAX)
        return err_set(in->err, -EINVAL, "%s: too large: %zu bytes (maximum %d)", key, bytes,
                       JOB_OPTIONS_MAX);
    int r = spec_set(in, key, v ? json_deep_copy(v) : json_object());
    struct run_options o = {0};
    if (r == 0)
        r = run_options_read_request(&o, &in->spec->options, in->spec->doc, in->err);
    run_options_fini(&o);
    return r;
}

/* Reads options of sbatch: {"partition": "gpu", "time": "4h"}. Values become strings, or true. */
static int spec_read_slurm(struct spec_input *in, const char *key, const json_t *v)
{
    enum { OPTIONS_AT_MOST = 32, VALUE_MAX = 200 };
    const char *name;
    json_t *value, *slurm;
    if (!v)
        return spec_set(in, key, json_null());
    if (!json_is_object(v) || json_object_size(v) > OPTIONS_AT_MOST)
        return json_refuse(in->err, key, v, "is not an object like {\"partition\": \"gpu\"}");
    slurm = json_object();
    int r = spec_set(in, key, slurm);
    json_object_foreach((json_t *)(uintptr_t)v, name, value)
    {
        char number[32];
        const char *text = json_string_value(value);
        if (json_is_integer(value)) {
            snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
            text = number;
        }
        if (!slurm_is_option(name))
            return err_set(in->err, -EINVAL,
                           "%s: a request cannot set the sbatch option \"%.100s\"", key, name);
        if (!json_is_true(value) && (!text || !text[0] || strlen(text) > VALUE_MAX ||
                                     (json_is_string(value) && !is_plain_text(value))))
            return json_refuse(
                in->err, key, value,
                "must be true, an integer, or a string of 1 to 200 bytes without NUL");
        if (r == 0)
            r = json_object_set_new(slurm, name, text ? json_string(text) : json_true());
    }
    return r;
}

/* The keys are read in this order. "name" comes after "command", from which its default is taken.
 * "limit" comes after "memory": if "memory" is missing, "limit" is the memory to reserve. */
static const struct {
    const char *key;
    int (*read)(struct spec_input *in, const char *key, const json_t *v);
} keys[] = {
    {"command", spec_read_command}, {"name", spec_read_name},       {"cwd", spec_read_cwd},
    {"env", spec_read_env},         {"gpus", spec_read_int},        {"memory", spec_read_size},
    {"limit", spec_read_size},      {"priority", spec_read_int},    {"after", spec_read_after},
    {"slurm", spec_read_slurm},     {"options", spec_read_options},
};
enum { KEYS = sizeof keys / sizeof *keys };

static int spec_check_keys(const json_t *doc, struct err *err)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)doc, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < KEYS && !is_known; i++)
            is_known = strcmp(key, keys[i].key) == 0;
        if (!is_known)
            return err_set(
                err, -EINVAL,
                "unknown key \"%.100s\"; the valid keys are command, name, cwd, env, gpus, "
                "memory, limit, priority, after, slurm and options",
                key);
    }
    return 0;
}

static int spec_read_keys(const json_t *doc, struct spec_input *in)
{
    for (size_t i = 0; i < KEYS; i++) {
        const json_t *v = json_object_get(doc, keys[i].key);
        /* null is the same as a missing key, except for the command, which is required */
        int r = keys[i].read(in, keys[i].key, i > 0 && json_is_null(v) ? NULL : v);
        if (r == -ENOMEM)
            return err_set(in->err, r, "out of memory");
        if (r < 0)
            return r;
    }
    return 0;
}

int job_spec_read(const json_t *doc, const char *base_cwd, struct job_spec *ret, struct err *err)
{
    struct job_spec spec = {.doc = json_object()};
    struct spec_input in = {&spec, base_cwd, err};
    int r = spec.doc ? 0 : err_set(err, -ENOMEM, "out of memory");
    if (r == 0 && !json_is_object(doc))
        r = err_set(err, -EINVAL,
                    "a request must be an object like {\"command\": [\"python\", "
                    "\"train.py\"]}");
    if (r == 0 && !json_object_get(doc, "command"))
        r = err_set(err, -EINVAL,
                    "command: missing; a request must be an object like "
                    "{\"command\": [\"python\", \"train.py\"]}");
    if (r == 0)
        r = spec_check_keys(doc, err);
    if (r == 0)
        r = spec_read_keys(doc, &in);
    if (r < 0) {
        job_spec_fini(&spec);
        return r;
    }
    spec.name = json_string_value(json_object_get(spec.doc, "name"));
    spec.cwd = json_string_value(json_object_get(spec.doc, "cwd"));
    *ret = spec;
    return 0;
}

void job_spec_fini(struct job_spec *spec)
{
    json_decref(spec->doc);
    options_given_fini(&spec->options);
    *spec = (struct job_spec){0};
}
