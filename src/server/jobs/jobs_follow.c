/* Handles messages from supervisors: checks them, stores them in the job's facts, and publishes
 * them. */
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"

static const double year_s = 366.0 * 24 * 3600;

/* ---- start and cancel ---- */

void jobs_run_waits(struct jobs *j, int64_t id, const char *why)
{
    struct job *job = jobs_find(j, id);
    /* the reason of a cancel must not be overwritten */
    if (job && job->live && !job->live->is_cancelled && job->state >= JOB_STARTING &&
        job->state <= JOB_CHECKPOINTING && strcmp(job->live->reason, why) != 0)
        jobs_change_soft(j, job, job->state, why);
}

void jobs_run_trouble(struct jobs *j, const char *sentence)
{
    if (sentence)
        jobs_trouble_set(j, TROUBLE_EXECUTOR, "%s", sentence);
    else
        jobs_trouble_clear(j, TROUBLE_EXECUTOR);
}

void jobs_run_started(struct jobs *j, int64_t id)
{
    struct job *job = jobs_find(j, id);
    if (!job || !job->live)
        return;
    if (!job->live->started_ns)
        job->live->started_ns = job_now_ns(job);
    if (job->live->spawned_ns)
        job->live->start_took_ns = clock_mono_ns() - job->live->spawned_ns;
    if (job->state == JOB_STARTING)
        jobs_change(j, job, JOB_RUNNING, NULL);
}

void jobs_ask_end(struct jobs *j, struct job *job, const char *reason, uint64_t grace_ns)
{
    if (job->live->is_over) /* its end is stored as soon as there is memory for that */
        return;
    bool is_first = !job->live->is_cancelled;
    job->live->is_cancelled = true;
    if (is_first)
        jobs_change(j, job, JOB_STOPPING, reason);
    if (job->live->run) /* if the cancel cannot be sent now, the executor repeats it */
        executor_cancel(job->live->run, job->live->reason, grace_ns);
}

/* ---- messages ---- */

static void raise_peak(struct job_facts *f, uint64_t bytes)
{
    f->has_memory = f->memory.has_peak_bytes = true;
    if (bytes > f->memory.peak_bytes)
        f->memory.peak_bytes = bytes;
}

static void take_verdict(struct jobs *j, struct job *job, const struct job_verdict *verdict)
{
    struct job_facts *f = &job->live->facts;
    if (!verdict->verdict[0]) /* an empty string means that there is no verdict yet */
        return;
    bool is_change = strcmp(f->verdict.verdict, verdict->verdict) != 0;
    f->has_verdict = true;
    f->verdict = *verdict;
    job->live->has_news = true;
    if (is_change)
        jobs_publish_verdict(j, job);
}

static void take_state(struct jobs *j, struct job *job, const struct job_message_state *m)
{
    enum job_state state;
    if (job_state_parse(m->state, &state) < 0 || job->state == JOB_STARTING ||
        (state != JOB_RUNNING && state != JOB_CHECKPOINTING && state != JOB_STOPPING))
        return;
    /* the supervisor may not have received the cancel yet */
    if (job->live->is_cancelled ||
        (state == job->state && strcmp(m->reason, job->live->reason) == 0))
        return;
    jobs_change_soft(j, job, state, m->reason[0] ? m->reason : NULL);
}

static void on_state(struct jobs *j, struct job *job, const struct job_message_state *m)
{
    struct job_live *live = job->live;
    struct job_facts *f = &live->facts;
    if (m->pid > 0)
        FACTS_TAKE(f, m, pid);
    if (m->segment >= 0)
        FACTS_TAKE(f, m, segment);
    if (!live->started_ns && m->started_s > 0 && m->started_s < 200 * year_s)
        live->started_ns = (uint64_t)(m->started_s * 1e9);
    f->has_progress = m->has_progress;
    f->progress = m->progress;
    FACTS_TAKE(&f->memory, m, limit_bytes);
    if (m->has_peak_bytes)
        raise_peak(f, m->peak_bytes);
    FACTS_TAKE(f, m, log_bytes);
    live->has_news = true;
    take_verdict(j, job, &m->verdict);
    take_state(j, job, m);
}

static void on_sample(struct job *job, const struct job_message_sample *m)
{
    struct job_facts *f = &job->live->facts;
    struct job_memory *memory = &f->memory;
    uint64_t gpu_bytes = 0;
    bool has_gpu = false;
    FACTS_TAKE(memory, m, job_bytes);
    FACTS_TAKE(memory, m, unique_bytes);
    FACTS_TAKE(memory, m, limit_bytes);
    FACTS_TAKE(memory, m, headroom_bytes);
    for (size_t i = 0; i < m->gpu_count && i < PLAN_GPUS_MAX; i++) {
        has_gpu = has_gpu || m->gpus[i].has_job_bytes;
        gpu_bytes += m->gpus[i].job_bytes;
    }
    if (has_gpu) {
        memory->has_gpu_bytes = true;
        memory->gpu_bytes = gpu_bytes;
    }
    f->has_memory = f->has_memory || memory->has_unique_bytes || memory->has_headroom_bytes ||
                    memory->has_gpu_bytes;
    job->live->has_news = true;
    if (!m->has_job_bytes)
        return;
    raise_peak(f, m->job_bytes);
    if (m->t_s >= 0 && m->t_s < 100 * year_s)
        (void)series_add(&job->live->spark, (uint64_t)(m->t_s * 1e9), m->job_bytes);
}

static void on_checkpoint_answer(struct jobs *j, struct job *job,
                                 const struct job_message_answer *m)
{
    struct job_live *live = job->live;
    live->checkpoint = m->ok ? CHECKPOINT_UNDER_WAY : CHECKPOINT_REFUSED;
    memcpy(live->checkpoint_error, m->error, sizeof live->checkpoint_error);
    jobs_publish(j, JOBS_NEWS_ANSWER, job->id, NULL);
    if (m->ok)
        return;
    json_t *event =
        json_pack("{s:s,s:I,s:s,s:o}", "type", "event", "id", (json_int_t)job->id, "act",
                  "checkpoint failed", "why", m->has_error ? json_text0(m->error) : json_null());
    jobs_publish(j, JOBS_NEWS_EVENT, job->id, event);
    json_decref(event);
}

static void take_message(struct jobs *j, struct job *job, const struct job_message *m,
                         const json_t *doc)
{
    switch (m->type) {
    case MESSAGE_SAMPLE:
        on_sample(job, &m->sample);
        break;
    case MESSAGE_STATE:
        on_state(j, job, &m->state);
        break;
    case MESSAGE_VERDICT:
        take_verdict(j, job, &m->verdict.verdict);
        break;
    case MESSAGE_LOG:
        if (m->log.has_bytes)
            job->live->facts.log_bytes = m->log.bytes;
        break;
    case MESSAGE_SPARK: /* the complete memory series, which the supervisor keeps */
        if (spark_unpack(doc, &job->live->spark))
            job->live->has_news = true;
        break;
    case MESSAGE_ANSWER:
        if (strcmp(m->answer.request, "checkpoint") == 0)
            on_checkpoint_answer(j, job, &m->answer);
        else if (strcmp(m->answer.request, "cancel") == 0 && !m->answer.ok)
            executor_cancel_again(job->live->run);
        break;
    default:
        break;
    }
}

void jobs_run_news(struct jobs *j, int64_t id, json_t *doc)
{
    static const enum jobs_news_kind kinds[] = {[MESSAGE_SAMPLE] = JOBS_NEWS_SAMPLE,
                                                [MESSAGE_MARK] = JOBS_NEWS_MARK,
                                                [MESSAGE_VERDICT] = JOBS_NEWS_VERDICT,
                                                [MESSAGE_EVENT] = JOBS_NEWS_EVENT,
                                                [MESSAGE_LOG] = JOBS_NEWS_LOG};
    struct job *job = jobs_find(j, id);
    struct job_message m;
    if (!job || !job->live || job->live->ending || job_message_read(doc, &m) < 0)
        return;
    take_message(j, job, &m, doc);
    if (m.type >= MESSAGE_SAMPLE && m.type <= MESSAGE_LOG &&
        json_object_set_new(doc, "id", json_integer(id)) == 0)
        jobs_publish(j, kinds[m.type], id, doc);
    jobs_tick_on(j);
    job_message_fini(&m);
}

/* ---- end ---- */

void jobs_run_over(struct jobs *j, int64_t id, const struct executor_end *end)
{
    struct job *job = jobs_find(j, id);
    if (!job || !job->live)
        return;
    job->live->run = NULL;
    j->ended++;
    if (end->no_start && !job->live->is_cancelled && !end->has_folder && end->is_disk_full) {
        jobs_requeue(j, job, end->no_start);
        return;
    }
    jobs_end(j, job, end);
}

void jobs_run_unstarted(struct jobs *j, int64_t id)
{
    struct job *job = jobs_find(j, id);
    if (!job || !job->live)
        return;
    job->live->run = NULL;
    if (job->state == JOB_STARTING && j->executor.kind->owns_machine) {
        jobs_requeue(j, job, NULL); /* the next start chooses another folder */
        return;
    }
    /* Slurm may still start the earlier submission; both submissions use the same folder, so that
     * only one of them can run */
    if (job->state == JOB_STARTING) {
        jobs_launch_again(j, job);
        return;
    }
    /* the job was started, and both its lock and its run folder were removed */
    jobs_end(j, job, &(struct executor_end){0});
}
