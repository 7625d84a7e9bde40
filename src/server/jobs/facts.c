/* Updates the facts of a job from run.json at its end. */
#include "server/jobs/facts.h"

#include "base/text.h"
#include "run/outcome.h"
#include "server/jobs/plan.h"
#include "verdict/verdict_json.h"

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
    /* Readings of the whole machine include other jobs, if any ran. */
    if (is_alone)
        g->clean = g->clean && outcome_is_returned(&back->host) && outcome_is_returned(&back->shm);
}

void job_facts_end(struct job_facts *f, const json_t *run, const struct outcome *o, uint64_t gpus,
                   bool is_alone)
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
