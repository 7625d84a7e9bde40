/* Writes the job file: jobs as in the API, but with the keys and words that other servers use. */
#include "server/jobs/jobfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "server/jobs/state.h"

/* Converts a state to the status in the job file, for which front ends know only five words. */
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

/* The progress in percent; null while the number of steps is unknown. */
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
