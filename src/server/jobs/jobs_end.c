/* Stores how a job ended, according to its run.json, which the job itself may have written. */
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "run/outcome.h"
#include "server/jobs/jobs_kept.h"
#include "server/jobs/jobs_private.h"

static const double year_s = 366.0 * 24 * 3600;

static void set_end_state(struct job_ending *e, enum job_state state, const char *reason)
{
    e->state = state;
    text_copy(e->reason, sizeof e->reason, reason);
}

static void choose_end_state(struct job_ending *e, const struct job_live *live,
                             const struct outcome *o, const struct executor_end *end)
{
    const struct job_facts *f = &e->facts;
    if (live->is_cancelled)
        set_end_state(e, JOB_CANCELLED, live->reason);
    else if (end->no_start)
        set_end_state(e, JOB_FAILED, end->no_start);
    else if (!o->has_end)
        set_end_state(e, JOB_LOST,
                      end->lost ? end->lost
                                : "all processes of the job exited, and run.json does not record "
                                  "how the job ended");
    else if (o->end.kind == OUTCOME_LOST)
        set_end_state(e, JOB_LOST, "the job's supervisor was killed");
    else if (strcmp(f->cause_kind, "cancelled") == 0)
        set_end_state(e, JOB_CANCELLED, f->cause);
    else if (f->has_status && f->status == 0)
        set_end_state(e, JOB_SUCCEEDED, NULL);
    else if (f->cause[0])
        set_end_state(e, JOB_FAILED, f->cause);
    else
        set_end_state(e, JOB_FAILED, "failed for an unknown reason");
}

/* ---- counters ---- */

static void count(struct job_ending *e, const char *key, double by)
{
    if (e->count_count == ENDING_COUNTS)
        return;
    e->counts[e->count_count].key = key;
    e->counts[e->count_count++].by = by;
}

/* Finds the counter for WORD, or OTHER. A job may invent words, which must not become counters. */
static const char *known_key(const char *const (*table)[2], size_t n, const char *word,
                             const char *other)
{
    for (size_t i = 0; word && i < n; i++)
        if (strcmp(table[i][0], word) == 0)
            return table[i][1];
    return other;
}

static const char *const cause_keys[][2] = {
    {"exit status", "failed.exit status"},
    {"exception", "failed.exception"},
    {"GPU memory", "failed.GPU memory"},
    {"allocation failed", "failed.allocation failed"},
    {"shared memory full", "failed.shared memory full"},
    {"signal", "failed.signal"},
    {"operator", "failed.operator"},
    {"guard", "failed.guard"},
    {"cgroup out of memory", "failed.cgroup out of memory"},
    {"host out of memory", "failed.host out of memory"},
    {"not started", "failed.not started"},
};

static const char *const verdict_keys[][2] = {
    {"stable", "verdict.stable"},       {"spiking", "verdict.spiking"},
    {"plateaued", "verdict.plateaued"}, {"filling", "verdict.filling"},
    {"stepping", "verdict.stepping"},   {"leaking", "verdict.leaking"},
    {"undecided", "verdict.undecided"},
};

static void count_end(struct job_ending *e, const struct job_live *live, const struct outcome *o)
{
    const struct job_facts *f = &e->facts;
    double cpu_s = o->measured.cost.cpu_s, job_s = (double)e->duration_ns / 1e9;
    if (e->state == JOB_FAILED)
        count(e,
              known_key(cause_keys, sizeof cause_keys / sizeof *cause_keys, f->cause_kind,
                        "failed.other"),
              1);
    if (f->has_verdict)
        count(e,
              known_key(verdict_keys, sizeof verdict_keys / sizeof *verdict_keys,
                        f->verdict.verdict, "verdict.undecided"),
              1);
    if (f->has_given_back)
        count(e, f->given_back.clean ? "returns.clean" : "returns.unclean", 1);
    if (f->has_given_back && f->given_back.has_host_bytes)
        count(e, "returned.host_bytes", (double)f->given_back.host_bytes);
    if (f->has_given_back && f->given_back.has_gpu_bytes)
        count(e, "returned.gpu_bytes", (double)f->given_back.gpu_bytes);
    if (live->start_took_ns) {
        count(e, "starts", 1);
        count(e, "start_seconds", (double)live->start_took_ns / 1e9);
    }
    /* ebb's own CPU time, and the run time of the same jobs */
    if (cpu_s > 0 && cpu_s <= job_s) {
        count(e, "overhead.cpu_seconds", cpu_s);
        count(e, "overhead.job_seconds", job_s);
    }
}

/* ---- the ending ---- */

/* The facts for the store and the API. The memory series in run.json is preferred, because it also
 * covers times when no server ran. */
static json_t *end_json(const struct job_facts *f, const struct job_live *live, const json_t *run)
{
    struct series read = {0};
    json_t *doc = json_object();
    bool is_read = spark_unpack(json_object_get(run, "spark"), &read);
    json_t *spark = spark_json(is_read ? &read : &live->spark);
    series_fini(&read);
    if (codec_put(job_facts_codec, f, doc) == 0 && json_object_set_new(doc, "spark", spark) == 0)
        return doc;
    json_decref(doc);
    return NULL;
}

struct job_ending *job_ending_new(const struct job_live *live, const struct executor_end *end)
{
    const json_t *run = end->run_json;
    struct job_ending *e = calloc(1, sizeof *e);
    struct outcome o = {0};
    if (!e || outcome_read(run, &o) < 0) {
        free(e);
        return NULL;
    }
    struct job_facts *f = &e->facts;
    e->has_folder = end->has_folder;
    *f = live->facts;
    job_facts_end(f, run, &o, live->gpus, live->is_alone);
    if (end->no_start) {
        f->has_cause = f->has_cause_kind = true;
        text_copy(f->cause, sizeof f->cause, end->no_start);
        text_copy(f->cause_kind, sizeof f->cause_kind, "not started");
    }
    double duration_s = o.measured.duration_s;
    if (duration_s > 0 && duration_s < 100 * year_s)
        e->duration_ns = (uint64_t)(duration_s * 1e9);
    if (!end->no_start)
        e->peak_bytes = o.measured.has_ask_bytes ? o.measured.ask_bytes : f->memory.peak_bytes;
    choose_end_state(e, live, &o, end);
    count_end(e, live, &o);
    e->end = end_json(f, live, run);
    outcome_fini(&o);
    if (e->end)
        return e;
    free(e);
    return NULL;
}

void job_ending_free(struct job_ending *e)
{
    if (!e)
        return;
    json_decref(e->end);
    free(e);
}
