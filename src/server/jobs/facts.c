/* The facts of a job by tables of their keys, and what run.json adds to them. */
#include "server/jobs/facts.h"

#include <string.h>

#include "run/outcome.h"
#include "server/jobs/plan.h"
#include "verdict/verdict_json.h"

/* Members are named after their keys; what is absent is null. */
#define FIELD(s, m, type) CODEC_FIELD(struct s, m, #m, CODEC_##type)
#define OR_NULL(s, m, type) CODEC_NULL(struct s, m, #m, CODEC_##type)
#define PART(s, m, of) CODEC_PART_HAS(struct s, m, #m, of, CODEC_OR_NULL)

static const char *const message_types[] = {
    [MESSAGE_OTHER] = "",      [MESSAGE_SAMPLE] = "sample",
    [MESSAGE_MARK] = "mark",   [MESSAGE_VERDICT] = "verdict",
    [MESSAGE_EVENT] = "event", [MESSAGE_LOG] = "log",
    [MESSAGE_STATE] = "state", [MESSAGE_ANSWER] = "answer",
    [MESSAGE_SPARK] = "spark", NULL};

static const struct codec gpu_codec[] = {OR_NULL(job_message_gpu, job_bytes, UINT), {0}};

static const struct codec message_codec[] = {
    CODEC_NAMED(struct job_message, type, "type", message_types),
    OR_NULL(job_message, state, TEXT),
    OR_NULL(job_message, reason, TEXT),
    CODEC_NULL(struct job_message, answers, "do", CODEC_TEXT),
    OR_NULL(job_message, ok, BOOL),
    OR_NULL(job_message, error, TEXT),
    OR_NULL(job_message, pid, INT),
    OR_NULL(job_message, segment, INT),
    OR_NULL(job_message, t_s, REAL),
    OR_NULL(job_message, started_s, REAL),
    OR_NULL(job_message, bytes, UINT),
    OR_NULL(job_message, log_bytes, UINT),
    OR_NULL(job_message, peak_bytes, UINT),
    CODEC_FLAT(struct job_message, memory, job_memory_codec),
    PART(job_message, progress, job_progress_codec),
    PART(job_message, verdict, job_verdict_codec),
    CODEC_MANY(struct job_message, gpus, gpu_count, "gpus", gpu_codec, CODEC_OR_NULL),
    {0}};

int job_facts_put(const struct job_facts *f, json_t *doc)
{
    return codec_put(job_facts_codec, f, doc);
}

int job_message_read(const json_t *doc, struct job_message *ret)
{
    *ret = (struct job_message){0};
    return codec_read(message_codec, doc, ret, NULL);
}

void job_message_fini(struct job_message *m)
{
    codec_fini(message_codec, m);
}

/* ---- the end ---- */

void facts_copy_text(char *to, size_t size, const char *from)
{
    size_t len = from ? strlen(from) : 0;
    if (len >= size)
        for (len = size - 1; len > 0 && ((unsigned char)from[len] & 0xc0) == 0x80;)
            len--;
    if (len)
        memcpy(to, from, len);
    to[len] = '\0';
}

/* Without a verdict in run.json the last one that was reported stays. */
static void end_verdict(struct job_facts *f, const json_t *run)
{
    struct verdict_result r = {0};
    struct job_verdict *v = &f->verdict;
    const json_t *tree = json_object_get(json_object_get(run, "verdict"), "tree");
    const char *sentence = json_string_value(json_array_get(json_object_get(tree, "evidence"), 0));
    if (!json_is_string(json_object_get(tree, "verdict")))
        return;
    verdict_read(tree, &r);
    f->has_verdict = true;
    *v = (struct job_verdict){
        .has_leak = json_is_boolean(json_object_get(tree, "leak")),
        .leak = r.leak == VERDICT_LEAK_YES,
        .has_confidence = true,
        .confidence = r.confidence,
        .has_rate_bytes_per_min = r.rate_bytes_per_min.known,
        .rate_bytes_per_min = r.rate_bytes_per_min.value,
        .has_rate_bytes_per_step = r.rate_bytes_per_step.known,
        .rate_bytes_per_step = r.rate_bytes_per_step.value,
        .has_oom_eta_s = r.oom.has_t,
        .oom_eta_s = {true, true, r.oom.eta_s_low, r.oom.eta_s_high},
        .has_sentence = sentence,
    };
    facts_copy_text(v->verdict, sizeof v->verdict, verdict_word_name(r.word));
    facts_copy_text(v->sentence, sizeof v->sentence, sentence);
}

#define TAKE(to, from, m)                                                                          \
    ((from)->has_##m ? (void)((to)->m = (from)->m, (to)->has_##m = true) : (void)0)

static void end_memory(struct job_facts *f, const struct outcome_measured *o)
{
    struct job_memory *m = &f->memory;
    const struct outcome_tree *tree = &o->tree;
    if (tree->series.has_peak_bytes && tree->series.peak_bytes > m->peak_bytes)
        TAKE(m, &tree->series, peak_bytes);
    if (tree->series.has_end_bytes) {
        m->has_job_bytes = true;
        m->job_bytes = tree->series.end_bytes;
    }
    TAKE(m, tree, unique_bytes);
    TAKE(m, &o->limit, limit_bytes);
    TAKE(m, &o->limit, headroom_bytes);
    for (size_t i = 0; i < o->gpu_count && i < PLAN_GPUS_MAX; i++) {
        if (!o->gpus[i].has_job_peak_bytes || o->gpus[i].job_peak_bytes < m->gpu_bytes)
            continue;
        m->has_gpu_bytes = true;
        m->gpu_bytes = o->gpus[i].job_peak_bytes;
    }
    f->has_memory = m->has_job_bytes || m->has_peak_bytes || m->has_unique_bytes ||
                    m->has_headroom_bytes || m->has_gpu_bytes;
}

/* Shared memory that is known to be the job's, and stayed. */
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
    /* the whole machine's memory says something about one job only while no other runs */
    if (is_alone)
        g->clean = g->clean && outcome_is_returned(&back->host) && outcome_is_returned(&back->shm);
}

void job_facts_end(struct job_facts *f, const json_t *run, const struct outcome *o, uint64_t gpus,
                   bool is_alone)
{
    f->has_status = o->end.has_status;
    f->status = o->end.status;
    f->has_cause = o->end.cause;
    facts_copy_text(f->cause, sizeof f->cause, o->end.cause);
    f->has_cause_kind = o->end.cause_kind;
    facts_copy_text(f->cause_kind, sizeof f->cause_kind, o->end.cause_kind);
    f->has_pid = o->about.has_pid;
    f->pid = o->about.pid;
    f->has_segment = o->about.has_segment;
    f->segment = o->about.segment;
    f->has_log_bytes = o->has_log;
    f->log_bytes = o->log.bytes;
    end_memory(f, &o->measured);
    end_verdict(f, run);
    end_given_back(f, o, gpus, is_alone);
    /* its last step is known better at the end than from the last message */
    if (o->measured.marks.has_last_step && o->measured.marks.last_step >= 0) {
        f->progress.has_step = true;
        f->progress.step = o->measured.marks.last_step;
    }
    f->progress.has_eta_s = false;
}
