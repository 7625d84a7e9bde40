/* The job file, written: jobs of the API in the words that other servers use. */
#include "server/jobs/jobfile.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "server/jobs/state.h"

/* The five words that every such front end knows. */
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

/* In percent; null where the job has not said how far it has to go. */
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

static int copy(json_t *to, const char *key, const json_t *from, const char *key_from)
{
    json_t *value = json_object_get(from, key_from);
    return value ? json_object_set(to, key, value) : json_object_set_new(to, key, json_null());
}

static json_t *entry_of(const json_t *job, const char *id)
{
    const char *state = json_string_value(json_object_get(job, "state"));
    const char *status = status_of(state);
    const json_t *progress = json_object_get(job, "progress");
    const json_t *memory = json_object_get(job, "memory");
    bool has_failed = strcmp(status, "failed") == 0;
    json_t *e = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o}", "job_id", id, "status", status,
                          "state", state ? state : "lost", "progress", progress_of(job, status),
                          "created_at", time_of(job, "submitted_s"), "started_at",
                          time_of(job, "started_s"), "completed_at", time_of(job, "ended_s"));
    if (!e || copy(e, "name", job, "name") < 0 || copy(e, "message", job, "reason") < 0 ||
        copy(e, "command", job, "command") < 0 || copy(e, "cwd", job, "cwd") < 0 ||
        copy(e, "current_step", progress, "step") < 0 ||
        copy(e, "total_steps", progress, "max_steps") < 0 ||
        copy(e, "epoch", progress, "epoch") < 0 || copy(e, "eta_seconds", progress, "eta_s") < 0 ||
        copy(e, "exit_status", job, "status") < 0 ||
        copy(e, "memory_bytes", memory, "job_bytes") < 0 ||
        copy(e, "peak_memory_bytes", memory, "peak_bytes") < 0 ||
        copy(e, "output_dir", job, "run_dir") < 0 ||
        copy(e, "error", has_failed ? job : NULL, "reason") < 0) {
        json_decref(e);
        return NULL;
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
        out->len--; /* without its newline: a comma may follow */
    return r;
}
