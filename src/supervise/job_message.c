/* Builds the messages that describe a running job (supervise/message.h). */
#include "supervise/job.h"

#include <string.h>

#include "base/clock.h"
#include "base/number.h"
#include "judge/judge.h"
#include "run/spark.h"
#include "trace/logs.h"

enum { LARGEST = 16 }; /* maximum number of processes in a sample message */

/* For value INDEX of a sample: sets M.has_FIELD to whether the sample contains the value, and
 * M.FIELD to the value. */
#define TAKE_SAMPLE(m, field, sample, index)                                                       \
    ((m).has_##field = sample_has(sample, index), (m).field = (sample)->v[index])

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
    return j->guard.checkpoint.is_open ? "checkpointing" : "running";
}

const char *job_state_reason(const struct job *j)
{
    const struct job_segment *n = &j->now;
    if (j->waits_for_disk)
        return job_run_status(j) == 0 ? "succeeded; waiting for disk space to write run.json"
                                      : "failed; waiting for disk space to write run.json";
    if (j->end.stuck[0] && n->ending == KILLING)
        return j->end.stuck;
    if (n->why[0])
        return n->why;
    if (cause_by_text(n->cause))
        return cause_by_text(n->cause);
    if (is_stopping(j))
        return n->exited ? "ending the remaining processes" : NULL;
    if (j->guard.checkpoint.is_open)
        return j->guard.is_requested ? "checkpoint requested by the user"
                                     : "checkpoint requested by the guard";
    return NULL;
}

static struct job_progress progress_of(const struct job *j)
{
    const struct segment_progress *p = &j->now.progress;
    uint64_t step_ns;
    bool is_timed = step_times_median_ns(&j->guard.timing.steps, &step_ns) && step_ns > 0;
    double step_s = is_timed ? (double)step_ns / (double)NS_PER_S : 1;
    bool has_end = is_timed && p->has_step && p->max_steps >= p->last_step && p->max_steps > 0;
    return (struct job_progress){.has_step = p->has_step,
                                 .step = p->last_step,
                                 .has_max_steps = p->max_steps,
                                 .max_steps = p->max_steps,
                                 .has_epoch = p->has_epoch,
                                 .epoch = p->epoch,
                                 .has_steps_per_s = is_timed,
                                 .steps_per_s = 1 / step_s,
                                 .has_eta_s = has_end,
                                 .eta_s =
                                     has_end ? (double)(p->max_steps - p->last_step) * step_s : 0};
}

/* Gets the verdict on the job. Returns false if there is no verdict yet. */
static bool verdict_of(const struct job *j, struct job_verdict *ret)
{
    const struct judge_tree *tree = judge_tree(engine_verdict(j->engine));
    char sentence[VERDICT_TEXT_MAX] = "";
    if (!tree || !judge_has_verdict(engine_verdict(j->engine)))
        return false;
    if (tree->result.n_evidence)
        verdict_evidence_text(sentence, sizeof sentence, &tree->result.evidence[0]);
    *ret = job_verdict_of(&tree->result, sentence);
    return true;
}

uint64_t job_log_readable_bytes(const struct job *j)
{
    return j->output.log ? logs_on_disk(j->output.log) : 0;
}

json_t *job_message_state(struct job *j)
{
    const struct job_segment *n = &j->now;
    const char *reason = job_state_reason(j);
    struct job_message m = {.type = MESSAGE_STATE,
                            .state = {.has_reason = reason,
                                      .has_pid = n->pid > 0,
                                      .pid = n->pid,
                                      .has_segment = true,
                                      .segment = n->number,
                                      .has_started_s = j->started_wall_ns,
                                      .started_s = outcome_seconds(j->started_wall_ns),
                                      .has_log_bytes = true,
                                      .log_bytes = job_log_readable_bytes(j),
                                      .progress = progress_of(j),
                                      .has_peak_bytes = engine_peak(j->engine),
                                      .peak_bytes = engine_peak(j->engine)}};
    struct job_message_state *s = &m.state;
    snprintf(s->state, sizeof s->state, "%s", job_state_name(j));
    snprintf(s->reason, sizeof s->reason, "%s", reason ? reason : "");
    s->has_progress = s->progress.has_step || s->progress.has_epoch || s->progress.has_max_steps;
    TAKE_SAMPLE(*s, limit_bytes, &engine_run(j->engine)->machine.last, MACHINE_LIMIT);
    s->has_verdict = verdict_of(j, &s->verdict);
    return job_message_json(&m);
}

/* ---- the other messages ---- */

json_t *job_message_spark(const struct job *j)
{
    json_t *doc = spark_pack(engine_run(j->engine)->job.signal[JOB_MEMORY]);
    json_object_set_new(doc, "type", json_string("spark"));
    return doc;
}

/* Lists only the largest processes, in descending order, because a job may have thousands. */
static size_t largest(struct proc_tree *tree, const struct proc_node *ret[LARGEST])
{
    size_t count = 0;
    for (size_t i = 0; i < proc_tree_count(tree); i++) {
        const struct proc_node *node = proc_tree_at(tree, i);
        if (!node->alive || !sample_has(&node->sample, SAMPLE_RSS))
            continue;
        size_t at = count < LARGEST ? count++ : LARGEST;
        for (; at > 0 && ret[at - 1]->sample.v[SAMPLE_RSS] < node->sample.v[SAMPLE_RSS]; at--)
            if (at < LARGEST)
                ret[at] = ret[at - 1];
        if (at < LARGEST)
            ret[at] = node;
    }
    return count;
}

static size_t list_processes(struct job *j, struct job_message_process ret[LARGEST])
{
    const struct proc_node *node[LARGEST];
    size_t count = largest(engine_tree(j->engine), node);
    for (size_t i = 0; i < count; i++) {
        const struct process_info *p = &node[i]->info;
        ret[i] = (struct job_message_process){.pid = p->id.pid};
        memcpy(ret[i].name, p->comm, p->comm_len);
        snprintf(ret[i].role, sizeof ret[i].role, "%s", process_role_name(p->role));
        TAKE_SAMPLE(ret[i], rss_bytes, &node[i]->sample, SAMPLE_RSS);
        TAKE_SAMPLE(ret[i], unique_bytes, &node[i]->sample, SAMPLE_UNIQUE);
    }
    return count;
}

static size_t list_gpus(const struct job *j, struct job_message_gpu ret[GPU_MAX])
{
    struct run_entity *const *gpus;
    size_t n = run_living(engine_run(j->engine), RUN_GPU, &gpus);
    for (size_t i = 0; i < n && i < GPU_MAX; i++) {
        ret[i] = (struct job_message_gpu){.index = gpus[i]->id};
        TAKE_SAMPLE(ret[i], job_bytes, &gpus[i]->last, GPU_JOB);
        TAKE_SAMPLE(ret[i], used_bytes, &gpus[i]->last, GPU_USED);
    }
    return n < GPU_MAX ? n : GPU_MAX;
}

json_t *job_message_sample(struct job *j, uint64_t now_ns)
{
    const struct sample *machine = &engine_run(j->engine)->machine.last;
    struct job_message_process processes[LARGEST];
    struct job_message_gpu gpus[GPU_MAX];
    struct proc_tree_memory memory;
    proc_tree_memory(engine_tree(j->engine), &memory);
    struct job_message m = {.type = MESSAGE_SAMPLE,
                            .sample = {.t_s = job_seconds(j, now_ns),
                                       .has_unique_bytes = memory.unique_known,
                                       .unique_bytes = memory.unique_bytes,
                                       .has_rss_sum_bytes = memory.known,
                                       .rss_sum_bytes = memory.rss_sum_bytes,
                                       .has_step = j->now.progress.has_step,
                                       .step = j->now.progress.last_step,
                                       .gpus = gpus,
                                       .gpu_count = list_gpus(j, gpus),
                                       .processes = processes,
                                       .process_count = list_processes(j, processes)}};
    struct job_message_sample *s = &m.sample;
    s->has_job_bytes = engine_memory(j->engine, &s->job_bytes);
    TAKE_SAMPLE(*s, limit_bytes, machine, MACHINE_LIMIT);
    s->has_headroom_bytes = s->has_limit_bytes && sample_has(machine, MACHINE_LIMIT_USED);
    s->headroom_bytes = u64_minus(s->limit_bytes, machine->v[MACHINE_LIMIT_USED]);
    return job_message_json(&m);
}

void job_facts_now(struct job *j, struct job_facts *ret)
{
    const struct sample *machine = &engine_run(j->engine)->machine.last;
    struct job_message_gpu gpus[GPU_MAX];
    struct job_memory *m = &ret->memory;
    struct proc_tree_memory tree;
    proc_tree_memory(engine_tree(j->engine), &tree);
    m->has_job_bytes = engine_memory(j->engine, &m->job_bytes);
    m->has_peak_bytes = engine_peak(j->engine);
    m->peak_bytes = engine_peak(j->engine);
    m->has_unique_bytes = tree.unique_known;
    m->unique_bytes = tree.unique_bytes;
    TAKE_SAMPLE(*m, limit_bytes, machine, MACHINE_LIMIT);
    m->has_headroom_bytes = m->has_limit_bytes && sample_has(machine, MACHINE_LIMIT_USED);
    m->headroom_bytes = u64_minus(m->limit_bytes, machine->v[MACHINE_LIMIT_USED]);
    for (size_t i = list_gpus(j, gpus); i-- > 0;) {
        m->has_gpu_bytes |= gpus[i].has_job_bytes;
        m->gpu_bytes += gpus[i].has_job_bytes ? gpus[i].job_bytes : 0;
    }
    ret->progress = progress_of(j);
    ret->has_verdict = verdict_of(j, &ret->verdict);
}

json_t *job_message_verdict(struct job *j, uint64_t now_ns)
{
    struct job_message m = {.type = MESSAGE_VERDICT, .verdict = {.t_s = job_seconds(j, now_ns)}};
    m.verdict.has_verdict = verdict_of(j, &m.verdict.verdict);
    return m.verdict.has_verdict ? job_message_json(&m) : NULL;
}

json_t *job_message_mark(const struct job *j, const struct mark *mark)
{
    size_t len = 0;
    const char *kind = mark->kind == MARK_OTHER ? mark_get(mark, "KIND", &len) : NULL;
    struct job_message m = {.type = MESSAGE_MARK,
                            .mark = {.t_s = job_seconds(j, mark->t_ns),
                                     .has_step = mark->has & MARK_HAS_STEP,
                                     .step = mark->step,
                                     .has_epoch = mark->has & MARK_HAS_EPOCH,
                                     .epoch = mark->epoch}};
    if (kind)
        snprintf(m.mark.kind, sizeof m.mark.kind, "%.*s", (int)len, kind);
    else
        snprintf(m.mark.kind, sizeof m.mark.kind, "%s", mark_kind_name(mark->kind));
    return job_message_json(&m);
}

json_t *job_message_event(const struct job *j, uint64_t now_ns, const char *act, const char *why)
{
    struct job_message m = {.type = MESSAGE_EVENT, .event = {.t_s = job_seconds(j, now_ns)}};
    snprintf(m.event.act, sizeof m.event.act, "%s", act);
    snprintf(m.event.why, sizeof m.event.why, "%s", why);
    return job_message_json(&m);
}
