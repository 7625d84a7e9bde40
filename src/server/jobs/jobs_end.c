/* Reads run.json to determine how a job ended. The file is not trusted, because the job itself
 * may have written it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "run/outcome.h"
#include "server/jobs/jobs_state.h"
#include "server/jobs/jobs_private.h"
#include "verdict/verdict_json.h"

/* ---- facts ---- */

/* Updates the verdict. If run.json has no verdict, keeps the last verdict that the supervisor
 * sent. */
static void end_verdict(struct job_facts *f, const json_t *run)
{
    struct verdict_result r = {0};
    const json_t *tree = json_object_get(json_object_get(run, "verdict"), "tree");
    const char *sentence = json_string_value(json_array_get(json_object_get(tree, "evidence"), 0));
    if (!json_is_string(json_object_get(tree, "verdict")))
        return;
    verdict_read(tree, &r);
    f->has_verdict = true;
    f->verdict = job_verdict_of(&r, sentence);
    f->verdict.has_leak = json_is_boolean(json_object_get(tree, "leak"));
}

static void end_memory(struct job_facts *f, const struct outcome_measured *o)
{
    struct job_memory *m = &f->memory;
    const struct outcome_tree *tree = &o->tree;
    if (tree->series.has_peak_bytes && tree->series.peak_bytes > m->peak_bytes)
        FACTS_TAKE(m, &tree->series, peak_bytes);
    if (tree->series.has_end_bytes) {
        m->has_job_bytes = true;
        m->job_bytes = tree->series.end_bytes;
    }
    FACTS_TAKE(m, tree, unique_bytes);
    FACTS_TAKE(m, &o->limit, limit_bytes);
    FACTS_TAKE(m, &o->limit, headroom_bytes);
    for (size_t i = 0; i < o->gpu_count && i < PLAN_GPUS_MAX; i++) {
        if (!o->gpus[i].has_job_peak_bytes || o->gpus[i].job_peak_bytes < m->gpu_bytes)
            continue;
        m->has_gpu_bytes = true;
        m->gpu_bytes = o->gpus[i].job_peak_bytes;
    }
    f->has_memory = m->has_job_bytes || m->has_peak_bytes || m->has_unique_bytes ||
                    m->has_headroom_bytes || m->has_gpu_bytes;
}

/* True if the job left a significant amount of shared memory behind. */
static bool has_left_shm(const struct outcome_left_list *left)
{
    enum { SLACK_BYTES = 20 << 20 };
    uint64_t sum = 0;
    for (size_t i = 0; i < left->shm_count; i++) {
        const struct outcome_left *file = &left->shm[i];
        if ((!file->has_is_jobs || file->is_jobs) && !file->removed &&
            file->bytes < UINT64_C(1) << 60)
            sum += file->bytes;
    }
    return sum > SLACK_BYTES;
}

static void end_given_back(struct job_facts *f, const struct outcome *o, uint64_t gpus,
                           bool is_alone)
{
    const struct outcome_given_back *back = &o->given_back;
    struct job_given_back *g = &f->given_back;
    f->has_given_back = o->has_given_back;
    *g = (struct job_given_back){.has_host_bytes = back->host.has_freed_bytes,
                                 .host_bytes = back->host.freed_bytes,
                                 .has_shm_bytes = back->shm.has_freed_bytes,
                                 .shm_bytes = back->shm.freed_bytes,
                                 .clean = !has_left_shm(&o->left)};
    for (size_t i = 0; i < back->gpu_count && i < PLAN_GPUS_MAX; i++) {
        const struct outcome_returned *gpu = &back->gpus[i];
        if (gpus >> i & 1 || is_alone)
            g->clean = g->clean && outcome_is_returned(gpu);
        g->has_gpu_bytes = g->has_gpu_bytes || gpu->has_freed_bytes;
        g->gpu_bytes += gpu->freed_bytes < UINT64_C(1) << 60 ? gpu->freed_bytes : 0;
    }
    /* Other jobs also change the values for the whole machine, so these values count only if no
     * other job ran. */
    if (is_alone)
        g->clean = g->clean && outcome_is_returned(&back->host) && outcome_is_returned(&back->shm);
}

/* Updates F from run.json. RUN is the JSON document, and O is the same document as a struct. GPUS
 * are the job's GPUs as bits. IS_ALONE means that no other job ran at the same time. */
static void job_facts_end(struct job_facts *f, const json_t *run, const struct outcome *o,
                          uint64_t gpus, bool is_alone)
{
    f->has_status = o->end.has_status;
    f->status = o->end.status;
    f->has_cause = o->end.cause;
    text_copy(f->cause, sizeof f->cause, o->end.cause);
    f->has_cause_kind = o->end.cause_kind;
    text_copy(f->cause_kind, sizeof f->cause_kind, o->end.cause_kind);
    f->has_pid = o->about.has_pid;
    f->pid = o->about.pid;
    f->has_segment = o->about.has_segment;
    f->segment = o->about.segment;
    f->has_log_bytes = o->has_log;
    f->log_bytes = o->log.bytes;
    end_memory(f, &o->measured);
    end_verdict(f, run);
    end_given_back(f, o, gpus, is_alone);
    /* the last step in run.json is newer than the one in the last message */
    if (o->measured.marks.has_last_step && o->measured.marks.last_step >= 0) {
        f->progress.has_step = true;
        f->progress.step = o->measured.marks.last_step;
    }
    f->progress.has_eta_s = false;
}

/* ---- state ---- */

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

/* Returns WORD if it is in the list, else OTHER. The words come from the job, which must not be
 * able to create counters. */
static const char *known_word(const char *const *list, const char *word, const char *other)
{
    for (; *list; list++)
        if (strcmp(*list, word) == 0)
            return *list;
    return other;
}

int job_ending_count(const struct job_ending *e, struct store *store, struct err *err)
{
    static const char *const causes[] = {
        "exit status", "exception", "GPU memory", "allocation failed",    "shared memory full",
        "signal",      "operator",  "guard",      "cgroup out of memory", "host out of memory",
        "not started", NULL};
    static const char *const verdicts[] = {"stable",   "spiking", "plateaued", "filling",
                                           "stepping", "leaking", "undecided", NULL};
    const struct job_facts *f = &e->facts;
    const struct job_given_back *back = &f->given_back;
    const double job_s = (double)e->duration_ns / 1e9;
    const bool has_cost = e->cpu_s > 0 && e->cpu_s <= job_s;
    const struct {
        const char *key, *word;
        double by;
    } counts[] = {
        {"ended.", job_state_word(e->state), 1},
        {"failed.", known_word(causes, f->cause_kind, "other"), e->state == JOB_FAILED},
        {"verdict.", known_word(verdicts, f->verdict.verdict, "undecided"), f->has_verdict},
        {"returns.", back->clean ? "clean" : "unclean", f->has_given_back},
        {"returned.", "host_bytes", f->has_given_back ? (double)back->host_bytes : 0},
        {"returned.", "gpu_bytes", f->has_given_back ? (double)back->gpu_bytes : 0},
        {"starts", "", e->start_took_ns > 0},
        {"start_seconds", "", (double)e->start_took_ns / 1e9},
        /* ebb's own CPU time, and the run time of the same jobs */
        {"overhead.", "cpu_seconds", has_cost ? e->cpu_s : 0},
        {"overhead.", "job_seconds", has_cost ? job_s : 0},
    };
    char key[64];
    int r = 0;
    for (size_t i = 0; r == 0 && i < sizeof counts / sizeof *counts; i++) {
        snprintf(key, sizeof key, "%s%s", counts[i].key, counts[i].word);
        if (counts[i].by > 0)
            r = store_count_up(store, key, counts[i].by, err);
    }
    return r;
}

/* ---- the ending ---- */

/* Returns the facts for the store and the API. The memory series in run.json is preferred, because
 * it also covers times when no server ran. */
static json_t *end_json(const struct job_facts *f, const struct job_live *live, const json_t *run)
{
    struct series read = {0};
    json_t *doc = json_object();
    bool is_read = spark_unpack(json_object_get(run, "spark"), &read);
    json_t *spark = spark_json(is_read ? &read : &live->spark);
    series_fini(&read);
    if (json_object_set_new(doc, "spark", spark) == 0 && codec_put(job_facts_codec, f, doc) == 0)
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
    e->cpu_s = o.measured.cost.cpu_s;
    e->start_took_ns = live->start_took_ns;
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
