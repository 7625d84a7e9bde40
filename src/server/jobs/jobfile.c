/* Writes the job file: jobs as in the API, but with the keys and status words that other servers
 * use. Reads the job files of various servers, which differ in format and in status words. */
#include "server/jobs/jobfile.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/json.h"
#include "base/words.h"
#include "server/jobs/state.h"

enum { RECORDS_MAX = 100000 };

/* ---- writing ---- */

/* Converts a state to a status word of the job file. The front ends that read the file know only
 * five status words. */
static const char *status_of(const char *word)
{
    enum job_state state;
    if (!word || job_state_parse(word, &state) < 0)
        return "failed";
    switch (state) {
    case JOB_QUEUED:
        return "queued";
    case JOB_STARTING:
    case JOB_RUNNING:
    case JOB_CHECKPOINTING:
    case JOB_STOPPING:
        return "running";
    case JOB_SUCCEEDED:
        return "completed";
    case JOB_CANCELLED:
        return "cancelled";
    default:
        return "failed";
    }
}

static json_t *time_of(const json_t *job, const char *key)
{
    double s = json_number_value(json_object_get(job, key));
    return s > 0 && s < 4e9 ? json_local_time((uint64_t)(s * 1e9)) : json_null();
}

/* Returns the progress in percent, or null while the number of steps is unknown. */
static json_t *progress_of(const json_t *job, const char *status)
{
    const json_t *progress = json_object_get(job, "progress");
    double step = json_number_value(json_object_get(progress, "step"));
    double all = json_number_value(json_object_get(progress, "max_steps"));
    if (strcmp(status, "completed") == 0)
        return json_real(100);
    if (all <= 0 || step < 0)
        return json_null();
    return json_real(step > all ? 100 : 100 * step / all);
}

/* Keys whose values are copied unchanged. */
static const struct {
    const char *key, *part, *from; /* if `part` is NULL, `from` is a key of the job itself */
} copied[] = {
    {"name", NULL, "name"},
    {"message", NULL, "reason"},
    {"command", NULL, "command"},
    {"cwd", NULL, "cwd"},
    {"current_step", "progress", "step"},
    {"total_steps", "progress", "max_steps"},
    {"epoch", "progress", "epoch"},
    {"eta_seconds", "progress", "eta_s"},
    {"exit_status", NULL, "status"},
    {"memory_bytes", "memory", "job_bytes"},
    {"peak_memory_bytes", "memory", "peak_bytes"},
    {"output_dir", NULL, "run_dir"},
    {"error", NULL, "reason"},
};

static json_t *entry_of(const json_t *job, const char *id)
{
    const char *state = json_string_value(json_object_get(job, "state"));
    const char *status = status_of(state);
    json_t *e = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "job_id", id, "status", status,
                          "state", state ? state : "lost", "progress", progress_of(job, status),
                          "created_at", time_of(job, "submitted_s"), "started_at",
                          time_of(job, "started_s"), "completed_at", time_of(job, "ended_s"));
    for (size_t i = 0; e && i < sizeof copied / sizeof *copied; i++) {
        const json_t *from = copied[i].part ? json_object_get(job, copied[i].part) : job;
        json_t *value = json_object_get(from, copied[i].from);
        if (strcmp(copied[i].key, "error") == 0 && strcmp(status, "failed") != 0)
            value = NULL;
        if (json_object_set_new(e, copied[i].key, value ? json_incref(value) : json_null()) < 0) {
            json_decref(e);
            return NULL;
        }
    }
    return e;
}

int jobfile_put(struct buf *out, const json_t *job)
{
    char id[32];
    snprintf(id, sizeof id, "%" JSON_INTEGER_FORMAT,
             json_integer_value(json_object_get(job, "id")));
    json_t *entry = entry_of(job, id);
    size_t before = out->len;
    buf_printf(out, "\"%s\": ", id);
    int r = entry ? json_print(out, entry, 0) : -ENOMEM;
    json_decref(entry);
    if (r < 0)
        out->len = before;
    else
        out->len--; /* removes the newline, because a comma may follow */
    return r;
}

/* ---- reading: status words and times ---- */

static const struct {
    enum job_state state;
    const char *words; /* status words, each with a space before and after it */
} meanings[] = {
    {JOB_QUEUED, " queued pending waiting scheduled created submitted new not_started "},
    {JOB_RUNNING, " running starting started training in_progress active initializing loading "
                  "preparing processing saving uploading checkpointing stopping "},
    {JOB_SUCCEEDED, " succeeded success completed complete done finished "},
    {JOB_FAILED, " failed failure error errored crashed oom timeout "},
    {JOB_CANCELLED, " cancelled canceled stopped aborted interrupted killed terminated "},
};

/* Returns the state that WORD stands for, or JOB_LOST if the word is unknown. */
static enum job_state state_of(const char *word)
{
    char wanted[64];
    snprintf(wanted, sizeof wanted, " %s ", word ? word : "");
    for (char *c = wanted + 1; c[0] && c[1]; c++)
        *c = *c == '-' || *c == ' ' ? '_' : (char)tolower((unsigned char)*c);
    for (size_t i = 0; word && word[0] && i < sizeof meanings / sizeof *meanings; i++) {
        if (strstr(meanings[i].words, wanted))
            return meanings[i].state;
    }
    return JOB_LOST;
}

/* Parses the offset from UTC at the end of an ISO 8601 time. musl's strptime lacks "%z". */
static bool read_offset(const char *s, time_t *ret_s)
{
    static const char *const formats[] = {"%H:%M", "%H%M", "%H"};
    if (*s == 'Z') {
        *ret_s = 0;
        return true;
    }
    for (size_t i = 0; (*s == '+' || *s == '-') && i < sizeof formats / sizeof *formats; i++) {
        struct tm tm = {0};
        if (strptime(s + 1, formats[i], &tm)) {
            *ret_s = (*s == '-' ? -60 : 60) * (tm.tm_hour * 60 + tm.tm_min);
            return true;
        }
    }
    return false;
}

/* Parses an ISO 8601 time as Python and JavaScript write it. A time without an offset is local
 * time. */
static bool read_iso(const char *s, double *ret)
{
    struct tm tm = {.tm_isdst = -1};
    time_t offset_s;
    double fraction = 0;
    const char *end = strptime(s, "%Y-%m-%dT%H:%M:%S", &tm);
    if (!end)
        end = strptime(s, "%Y-%m-%d %H:%M:%S", &tm);
    if (!end)
        return false;
    if (*end == '.' && isdigit((unsigned char)end[1])) {
        size_t len = 1 + strspn(end + 1, "0123456789");
        fraction = strtod(end, NULL);
        end += len;
    }
    time_t t = read_offset(end, &offset_s) ? timegm(&tm) - offset_s : mktime(&tm);
    *ret = (double)t + fraction;
    return t > 0;
}

/* Returns the first valid time among the members that KEYS lists, as Unix time in ns, or 0. A
 * time is a number of seconds or milliseconds, or an ISO 8601 string. */
static uint64_t time_at(const json_t *record, const char *const *keys)
{
    for (; *keys; keys++) {
        const json_t *v = json_object_get(record, *keys);
        double s = json_number_value(v);
        if (json_is_number(v) && s > 1e11)
            s /= 1000;
        if ((json_is_number(v) || (json_is_string(v) && read_iso(json_string_value(v), &s))) &&
            s > 0 && s < 4e9)
            return (uint64_t)(s * 1e9);
    }
    return 0;
}

static json_t *first_of(const json_t *record, const char *const *keys)
{
    for (; *keys; keys++) {
        json_t *v = json_object_get(record, *keys);
        if (v && !json_is_null(v))
            return v;
    }
    return NULL;
}

static const char *text_of(const json_t *record, const char *const *keys)
{
    const char *text = json_string_value(first_of(record, keys));
    return text && text[0] ? text : NULL;
}

/* ---- one record ---- */

#define KEYS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* Returns the command as a list, or NULL if there is none. A command that is a single string is
 * split as a shell would split it. */
static json_t *command_of(const json_t *record)
{
    json_t *command = first_of(record, KEYS("command", "cmd", "argv"));
    AUTO_FREE char **words = NULL;
    if (json_is_array(command))
        return json_incref(command);
    if (!json_is_string(command) || words_split("", json_string_value(command), &words, NULL) < 0 ||
        !words[0])
        return NULL;
    json_t *list = json_array();
    for (char **word = words; *word; word++)
        json_array_append_new(list, json_text0(*word));
    return list;
}

/* Makes a request that would run the job again. Returns NULL if the file does not contain the
 * command. */
static json_t *request_of(const json_t *record, const char *name)
{
    static const char *const same[] = {"env",      "gpus",    "memory", "limit",
                                       "priority", "options", NULL};
    const json_t *from = json_object_get(record, "request");
    if (!json_is_object(from))
        from = record;
    json_t *command = command_of(from),
           *cwd = first_of(from, KEYS("cwd", "working_dir", "workdir"));
    if (!command)
        return NULL;
    json_t *request = json_pack("{s:o, s:o}", "command", command, "name", json_text0(name));
    if (cwd)
        json_object_set(request, "cwd", cwd);
    for (const char *const *key = same; *key; key++) {
        json_t *v = json_object_get(from, *key);
        if (v)
            json_object_set(request, *key, v);
    }
    return request;
}

/* Reads one job and calls FN. Returns 0 or the result of FN. */
static int read_record(const json_t *record, const char *key, const char *path, jobfile_fn *fn,
                       void *user, struct err *err)
{
    char number[32];
    if (!json_is_object(record))
        return err_set(err, -EINVAL, "job file %s: %s%s is not an object", path,
                       key ? "entry " : "an entry of the list", key ? key : "");
    const json_t *id = first_of(record, KEYS("job_id", "id", "uuid"));
    const char *name = text_of(record, KEYS("name", "job_name", "title", "run_name"));
    if (json_is_string(id)) {
        key = json_string_value(id);
    } else if (json_is_integer(id)) {
        snprintf(number, sizeof number, "%" JSON_INTEGER_FORMAT, json_integer_value(id));
        key = number;
    }
    if (!key)
        return err_set(err, -EINVAL, "job file %s: an entry has no job_id", path);
    struct jobfile_entry entry = {
        .name = name     ? name
                : key[0] ? key
                         : "job",
        .state = state_of(text_of(record, KEYS("status", "state"))),
        .submitted_ns = time_at(
            record, KEYS("created_at", "submitted_at", "submitted_s", "created", "timestamp")),
        .started_ns = time_at(record, KEYS("started_at", "started_s", "start_time", "started")),
        .ended_ns = time_at(
            record, KEYS("completed_at", "finished_at", "ended_at", "ended_s", "end_time"))};
    entry.request = request_of(record, entry.name);
    int r = fn(user, &entry, err);
    json_decref(entry.request);
    return r;
}

/* ---- the file ---- */

static int read_records(const json_t *doc, const char *path, jobfile_fn *fn, void *user,
                        struct err *err)
{
    const json_t *jobs = json_object_get(doc, "jobs");
    const char *key;
    json_t *record;
    size_t i;
    int r = 0;
    if (json_is_array(jobs) || json_is_object(jobs))
        doc = jobs;
    if (json_array_size(doc) > RECORDS_MAX || json_object_size(doc) > RECORDS_MAX)
        return err_set(err, -EINVAL, "job file %s has more than %d jobs", path, RECORDS_MAX);
    if (!json_is_array(doc) && !json_is_object(doc))
        return err_set(err, -EINVAL,
                       "job file %s is neither a list of jobs nor an object with job ids as keys",
                       path);
    json_array_foreach(doc, i, record)
    {
        if (r == 0)
            r = read_record(record, NULL, path, fn, user, err);
    }
    json_object_foreach((json_t *)(uintptr_t)doc, key, record)
    {
        if (r == 0)
            r = read_record(record, key, path, fn, user, err);
    }
    return r;
}

int jobfile_read(const char *path, const char *text, size_t len, jobfile_fn *fn, void *user,
                 struct err *err)
{
    json_t *doc = json_parse(text, len, err);
    int r = doc ? read_records(doc, path, fn, user, err)
                : err_prefix(err, -EINVAL, "job file %s", path);
    json_decref(doc);
    return r;
}
