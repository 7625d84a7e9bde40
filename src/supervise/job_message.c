/* Status messages about a running job, for the job server. docs/api.md describes them. */
#include "supervise/job.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "judge/judge.h"
#include "run/spark.h"
#include "trace/logs.h"

enum { LARGEST = 16 }; /* processes in a sample */

static json_t *since_start(const struct job *j, uint64_t t_ns)
{
    return json_seconds(t_ns > j->started_ns ? t_ns - j->started_ns : 0);
}

static json_t *field_json(const struct sample *s, unsigned field)
{
    return sample_has(s, field) ? json_u64(s->v[field]) : json_null();
}

static json_t *number_or_null(bool known, double v)
{
    return known && isfinite(v) ? json_real(v) : json_null();
}

/* ---- the state ---- */

static bool is_stopping(const struct job *j)
{
    const struct job_segment *n = &j->now;
    return n->is_last || n->cause || n->ending >= TERMINATING;
}

const char *job_state_name(const struct job *j)
{
    if (is_stopping(j))
        return "stopping";
    return j->guard.ask.is_open ? "checkpointing" : "running";
}

const char *job_state_reason(const struct job *j)
{
    const struct job_segment *n = &j->now;
    if (j->waits_for_room)
        return job_run_status(j) == 0 ? "it has succeeded; the disk is too full to write that down"
                                      : "it has failed; the disk is too full to write that down";
    if (j->end.stuck[0] && n->ending == KILLING)
        return j->end.stuck;
    if (n->why[0])
        return n->why;
    if (cause_by_text(n->cause))
        return cause_by_text(n->cause);
    if (is_stopping(j))
        return n->exited ? "what it left behind is being ended" : NULL;
    if (j->guard.ask.is_open)
        return j->guard.is_requested ? "asked for by request" : "asked for by the guard";
    return NULL;
}

static json_t *progress_json(const struct job *j)
{
    const struct job_progress *p = &j->now.progress;
    uint64_t step_ns;
    if (!p->has_step && !p->has_epoch && !p->max_steps)
        return json_null();
    bool is_timed = step_times_median_ns(&j->guard.tempo.steps, &step_ns) && step_ns > 0;
    double step_s = is_timed ? (double)step_ns / (double)NS_PER_S : 1;
    bool has_end = is_timed && p->has_step && p->max_steps >= p->last_step && p->max_steps > 0;
    double left = has_end ? (double)(p->max_steps - p->last_step) : 0;
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o}", "step", p->has_step ? json_integer(p->last_step) : json_null(),
        "max_steps", p->max_steps ? json_integer(p->max_steps) : json_null(), "epoch",
        number_or_null(p->has_epoch, p->epoch), "steps_per_s", number_or_null(is_timed, 1 / step_s),
        "eta_s", number_or_null(has_end, left * step_s));
}

static json_t *verdict_json(const struct job *j)
{
    const struct judge_tree *tree = judge_tree(engine_verdict(j->engine));
    char sentence[VERDICT_TEXT_MAX] = "";
    if (!tree || !engine_verdict_known(j->engine))
        return json_null();
    const struct verdict_result *r = &tree->result;
    bool has_eta = r->oom.known && r->oom.has_t;
    if (r->n_evidence)
        verdict_evidence_text(sentence, sizeof sentence, &r->evidence[0]);
    json_t *eta = has_eta ? json_pack("{s:o,s:o}", "low", number_or_null(true, r->oom.eta_s_low),
                                      "high", number_or_null(true, r->oom.eta_s_high))
                          : json_null();
    return json_pack(
        "{s:s,s:o,s:o,s:o,s:o,s:o,s:o}", "verdict", verdict_word_name(r->word), "leak",
        r->leak == VERDICT_LEAK_UNKNOWN ? json_null() : json_boolean(r->leak == VERDICT_LEAK_YES),
        "confidence", number_or_null(true, r->confidence), "rate_bytes_per_min",
        number_or_null(r->rate_bytes_per_min.known, r->rate_bytes_per_min.value),
        "rate_bytes_per_step",
        number_or_null(r->rate_bytes_per_step.known, r->rate_bytes_per_step.value), "oom_eta_s",
        eta, "sentence", sentence[0] ? json_text0(sentence) : json_null());
}

uint64_t job_log_readable_bytes(const struct job *j)
{
    return j->output.log ? logs_on_disk(j->output.log) : 0;
}

json_t *job_message_state(struct job *j)
{
    const struct job_segment *n = &j->now;
    uint64_t peak = engine_peak(j->engine);
    return json_pack("{s:s,s:s,s:o,s:o,s:i,s:o,s:o,s:o,s:o,s:o,s:o}", "type", "state", "state",
                     job_state_name(j), "reason", json_text0(job_state_reason(j)), "pid",
                     n->pid > 0 ? json_integer(n->pid) : json_null(), "segment", (int)n->number,
                     "started_s",
                     j->started_wall_ns ? json_seconds(j->started_wall_ns) : json_null(),
                     "log_bytes", json_u64(job_log_readable_bytes(j)), "limit_bytes",
                     field_json(&engine_run(j->engine)->machine.last, MACHINE_LIMIT), "progress",
                     progress_json(j), "verdict", verdict_json(j), "peak_bytes",
                     peak ? json_u64(peak) : json_null());
}

/* ---- the others ---- */

json_t *job_message_spark(const struct job *j)
{
    json_t *doc = spark_pack(engine_run(j->engine)->job.signal[JOB_MEMORY]);
    json_object_set_new(doc, "type", json_string("spark"));
    return doc;
}

static int by_rss(const void *a, const void *b)
{
    const struct proc_node *const *x = a, *const *y = b;
    uint64_t p = (*x)->sample.v[SAMPLE_RSS], q = (*y)->sample.v[SAMPLE_RSS];
    return (p < q) - (p > q);
}

/* The 16 largest, the largest first. A job may have thousands. */
static size_t largest(struct proc_tree *tree, const struct proc_node *ret[LARGEST])
{
    size_t count = 0;
    for (size_t i = 0; i < proc_tree_count(tree); i++) {
        const struct proc_node *node = proc_tree_at(tree, i);
        if (!node->alive || !sample_has(&node->sample, SAMPLE_RSS))
            continue;
        if (count < LARGEST)
            ret[count++] = node;
        else if (node->sample.v[SAMPLE_RSS] > ret[LARGEST - 1]->sample.v[SAMPLE_RSS])
            ret[LARGEST - 1] = node;
        else
            continue;
        if (count == LARGEST) /* the smallest is last */
            qsort(ret, count, sizeof(void *), by_rss);
    }
    qsort(ret, count, sizeof(void *), by_rss);
    return count;
}

static json_t *sample_processes_json(struct job *j)
{
    const struct proc_node *node[LARGEST];
    size_t count = largest(engine_tree(j->engine), node);
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct process_info *p = &node[i]->info;
        json_array_append_new(
            list, json_pack("{s:i,s:o,s:s,s:o,s:o}", "pid", (int)p->id.pid, "name",
                            json_text(p->comm, p->comm_len), "role", process_role_name(p->role),
                            "rss_bytes", field_json(&node[i]->sample, SAMPLE_RSS), "unique_bytes",
                            field_json(&node[i]->sample, SAMPLE_UNIQUE)));
    }
    return list;
}

static json_t *sample_gpus_json(const struct job *j)
{
    json_t *list = json_array();
    struct run_entity *const *gpus;
    size_t n = run_living(engine_run(j->engine), RUN_GPU, &gpus);
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:i,s:o,s:o}", "index", (int)gpus[i]->id,
                                              "job_bytes", field_json(&gpus[i]->last, GPU_JOB),
                                              "used_bytes", field_json(&gpus[i]->last, GPU_USED)));
    return list;
}

static json_t *headroom_json(const struct job *j)
{
    const struct sample *m = &engine_run(j->engine)->machine.last;
    if (!sample_has(m, MACHINE_LIMIT) || !sample_has(m, MACHINE_LIMIT_USED))
        return json_null();
    uint64_t limit = m->v[MACHINE_LIMIT], used = m->v[MACHINE_LIMIT_USED];
    return json_u64(limit > used ? limit - used : 0);
}

json_t *job_message_sample(struct job *j, uint64_t now_ns)
{
    struct proc_tree_memory memory;
    uint64_t bytes;
    bool known = engine_memory(j->engine, &bytes);
    proc_tree_memory(engine_tree(j->engine), &memory);
    return json_pack(
        "{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "type", "sample", "t_s",
        since_start(j, now_ns), "job_bytes", known ? json_u64(bytes) : json_null(), "unique_bytes",
        memory.unique_known ? json_u64(memory.unique_bytes) : json_null(), "rss_sum_bytes",
        memory.known ? json_u64(memory.rss_sum_bytes) : json_null(), "limit_bytes",
        field_json(&engine_run(j->engine)->machine.last, MACHINE_LIMIT), "headroom_bytes",
        headroom_json(j), "step",
        j->now.progress.has_step ? json_integer(j->now.progress.last_step) : json_null(), "gpus",
        sample_gpus_json(j), "processes", sample_processes_json(j));
}

json_t *job_message_verdict(struct job *j, uint64_t now_ns)
{
    if (!engine_verdict_known(j->engine))
        return NULL;
    return json_pack("{s:s,s:o,s:o}", "type", "verdict", "t_s", since_start(j, now_ns), "verdict",
                     verdict_json(j));
}

json_t *job_message_mark(const struct job *j, const struct mark *mark)
{
    size_t len;
    const char *kind = mark_get(mark, "KIND", &len);
    bool is_known = mark->kind != MARK_OTHER || !kind;
    return json_pack("{s:s,s:o,s:o,s:o,s:o}", "type", "mark", "t_s", since_start(j, mark->t_ns),
                     "kind",
                     is_known ? json_text0(mark_kind_name(mark->kind)) : json_text(kind, len),
                     "step", mark->has & MARK_HAS_STEP ? json_integer(mark->step) : json_null(),
                     "epoch", number_or_null(mark->has & MARK_HAS_EPOCH, mark->epoch));
}

json_t *job_message_event(const struct job *j, uint64_t now_ns, const char *act, const char *why)
{
    return json_pack("{s:s,s:o,s:s,s:o}", "type", "event", "t_s", since_start(j, now_ns), "act",
                     act, "why", json_text0(why));
}
