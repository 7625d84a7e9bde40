/* State changes of jobs: made in memory at once, stored as soon as possible, and published. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"

enum {
    /* up to this number, each state change that a supervisor reports is stored */
    SOFT_EACH = 100,
    /* after SOFT_EACH changes, at most one per second is stored; after this number, none is stored
     * or logged */
    SOFT_MAX = 1000,
    /* minimum time between two messages about a job; a verdict that changes sooner is published
     * with the next message */
    PUBLISH_MS = 100,
};

/* ---- problems to report ---- */

void jobs_trouble_set(struct jobs *j, enum trouble kind, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(j->trouble[kind], sizeof j->trouble[kind], fmt, ap);
    va_end(ap);
}

void jobs_trouble_clear(struct jobs *j, enum trouble kind)
{
    j->trouble[kind][0] = '\0';
}

static void store_trouble(struct jobs *j, const struct err *err)
{
    jobs_trouble_set(j, TROUBLE_STORE, "cannot store state changes: %s", err->text);
    jobs_tick_on(j);
}

/* ---- publishing ---- */

static void publish_news(struct jobs *j, const struct jobs_news *news)
{
    for (size_t i = 0; i < JOBS_LISTENERS; i++)
        if (j->listener[i].fn)
            j->listener[i].fn(j->listener[i].user, news);
}

void jobs_publish_job(struct jobs *j, struct job *job, bool is_change)
{
    uint64_t now_ns = clock_mono_ns();
    j->is_file_due = j->is_file_due || is_change;
    if (job->live) {
        job->live->published_ns = now_ns;
        job->live->has_news = false;
    }
    if (j->is_file_due)
        jobs_tick_on(j);
    json_t *doc = jobs_job_json(j, job);
    job->published_why = job->verdict.why;
    if (doc)
        publish_news(j, &(struct jobs_news){.kind = JOBS_NEWS_JOB,
                                            .id = job->id,
                                            .doc = doc,
                                            .state = job->state,
                                            .reason = job->live ? job->live->reason : "",
                                            .is_change = is_change});
    json_decref(doc);
}

void jobs_publish_verdict(struct jobs *j, struct job *job)
{
    if (clock_mono_ns() - job->live->published_ns >= PUBLISH_MS * NS_PER_MS)
        jobs_publish_job(j, job, true);
    else
        job->live->has_news = true;
}

void jobs_publish_removed(struct jobs *j, int64_t id)
{
    j->is_file_due = true;
    jobs_tick_on(j);
    jobs_publish(j, JOBS_NEWS_REMOVED, id, NULL);
}

void jobs_publish(struct jobs *j, enum jobs_news_kind kind, int64_t id, const json_t *message)
{
    publish_news(j, &(struct jobs_news){.kind = kind, .id = id, .doc = message, .reason = ""});
}

/* ---- storing ---- */

uint64_t job_now_ns(const struct job *job)
{
    uint64_t now_ns = job->wall_ns + (clock_boot_ns() - job->boot_ns);
    return now_ns > job->changed_ns ? now_ns : job->changed_ns;
}

/* Marks a job as cancelled in the store. A restarted server would otherwise record its end as a
 * failure. */
static const char asked_mark[] = "{\"asked\":true}";

static int write_change(struct jobs *j, struct job *job, struct err *err)
{
    const struct job_live *live = job->live;
    char gpus[PLAN_GPU_TEXT];
    struct store_change change = {.state = job->state, .at_ns = job->changed_ns};
    if (live && job->state != JOB_QUEUED) {
        change.reason = live->reason[0] ? live->reason : NULL;
        change.run_dir = live->folder.name;
        change.folder_id = live->folder.id[0] ? live->folder.id : NULL;
        plan_gpu_text(live->gpus, gpus);
        change.gpus = gpus[0] ? gpus : NULL;
        change.memory_bytes = job->memory_bytes;
        change.memory_from = job->memory_from;
        change.started_ns = live->started_ns;
        change.end = live->is_cancelled ? asked_mark : NULL;
    }
    return store_change(j->store, job->id, &change, err);
}

static bool jobs_write_end(struct jobs *j, struct job *job); /* returns true if JOB was freed */

static bool write_down(struct jobs *j, struct job *job)
{
    struct err err;
    if (!job->is_dirty)
        return true;
    if (job->live && job->live->ending)
        return jobs_write_end(j, job);
    if (write_change(j, job, &err) < 0) {
        store_trouble(j, &err);
        return false;
    }
    jobs_trouble_clear(j, TROUBLE_STORE);
    job->is_dirty = false;
    return true;
}

static void set_state(struct jobs *j, struct job *job, enum job_state state, const char *reason)
{
    /* stores the previous change first, because each change has its own entry in the list of
     * changes */
    if (job->live && job->state > JOB_STARTING && job->live->changes <= SOFT_EACH)
        write_down(j, job);
    job->state = state;
    job->is_dirty = true;
    job->changed_ns = job_now_ns(job);
    if (job->live)
        snprintf(job->live->reason, sizeof job->live->reason, "%s", reason ? reason : "");
}

void jobs_change(struct jobs *j, struct job *job, enum job_state state, const char *reason)
{
    set_state(j, job, state, reason);
    write_down(j, job);
    jobs_publish_job(j, job, true);
}

bool jobs_change_first(struct jobs *j, struct job *job, enum job_state state)
{
    const enum job_state state_before = job->state;
    const uint64_t changed_before = job->changed_ns;
    const bool was_dirty = job->is_dirty;
    set_state(j, job, state, NULL);
    if (write_down(j, job))
        return true;
    job->state = state_before;
    job->changed_ns = changed_before;
    job->is_dirty = was_dirty;
    return false;
}

void jobs_change_soft(struct jobs *j, struct job *job, enum job_state state, const char *reason)
{
    bool was_dirty = job->is_dirty, is_kept = ++job->live->changes <= SOFT_MAX;
    set_state(j, job, state, reason);
    if (!is_kept)
        job->is_dirty = was_dirty;
    j->is_file_due = true;
    jobs_tick_on(j);
    jobs_publish_job(j, job, is_kept);
}

int jobs_end_queued(struct jobs *j, struct job *job, enum job_state state, const char *reason,
                    struct err *err)
{
    struct store_change change = {
        .state = state, .reason = reason, .at_ns = job_now_ns(job), .ended_age_ns = jobs_age_ns(j)};
    int r = store_change(j->store, job->id, &change, err);
    if (r < 0) {
        store_trouble(j, err);
        return r;
    }
    jobs_trouble_clear(j, TROUBLE_STORE);
    job->state = state;
    job->changed_ns = change.at_ns;
    jobs_publish_job(j, job, true);
    jobs_delete(j, job);
    j->is_unsettled = true;
    jobs_keeper_wake(j->keeper);
    jobs_kick(j);
    return 0;
}

/* ---- the end ---- */

static int learn_peak(struct jobs *j, const struct job *job, const struct job_ending *e,
                      struct err *err)
{
    if (!e->peak_bytes)
        return 0;
    /* a job that failed may not have reached its peak, so only a higher peak is stored */
    if (e->state != JOB_SUCCEEDED && e->peak_bytes <= store_learned(j->store, job->name))
        return 0;
    return store_learn(j->store, job->name, e->peak_bytes, job->changed_ns, err);
}

static int write_end(struct jobs *j, struct job *job, struct err *err)
{
    const struct job_live *live = job->live;
    const struct job_ending *e = live->ending;
    char *end = json_dumps(e->end, JSON_COMPACT);
    struct store_change change = {.state = e->state,
                                  .reason = e->reason[0] ? e->reason : NULL,
                                  .at_ns = job->changed_ns,
                                  .started_ns = live->started_ns,
                                  .run_dir = e->has_folder ? live->folder.name : "",
                                  .ended_age_ns = jobs_age_ns(j),
                                  .memory_bytes = job->memory_bytes,
                                  .memory_from = job->memory_from,
                                  .end = end};
    int r = end ? store_begin(j->store, err) : err_set(err, -ENOMEM, "out of memory");
    if (r == 0) {
        r = store_change(j->store, job->id, &change, err);
        if (r == 0)
            r = learn_peak(j, job, e, err);
        if (r == 0)
            r = job_ending_count(e, j->store, err);
        r = store_end(j->store, r, err);
    }
    free(end);
    return r;
}

static bool jobs_write_end(struct jobs *j, struct job *job)
{
    struct err err;
    if (write_end(j, job, &err) < 0) {
        store_trouble(j, &err);
        return false;
    }
    jobs_trouble_clear(j, TROUBLE_STORE);
    int64_t id = job->id;
    bool is_learned = job->live->ending->peak_bytes > 0;
    executor_forget(&j->executor, id);
    if (is_learned)
        jobs_relearn(j, job->name);
    jobs_delete(j, job);
    j->is_unsettled = true;
    jobs_kick(j);
    jobs_keeper_wake(j->keeper);
    return true;
}

/* Keeps the executor's report for jobs_sync_all, which tries again to end the job. */
static void keep_over(struct jobs *j, struct job_live *live, const struct executor_end *end)
{
    jobs_tick_on(j);
    if (live->is_over)
        return;
    const char *text = end->no_start ? end->no_start : end->lost;
    live->is_over = true;
    live->over = *end;
    json_incref((json_t *)(uintptr_t)end->run_json);
    snprintf(live->over_text, sizeof live->over_text, "%s", text ? text : "");
    live->over.no_start = end->no_start ? live->over_text : NULL;
    live->over.lost = end->lost ? live->over_text : NULL;
}

void jobs_end(struct jobs *j, struct job *job, const struct executor_end *end)
{
    struct job_live *live = job->live;
    struct job_ending *ending = job_ending_new(live, end);
    if (!ending) {
        keep_over(j, live, end);
        return;
    }
    uint64_t before_ns = job->changed_ns;
    live->run = NULL;
    set_state(j, job, ending->state, ending->reason);
    live->ending = ending;
    /* The end time is computed from the monotonic duration if that is known, because the wall clock
     * may have been set. */
    if (ending->duration_ns && live->started_ns) {
        uint64_t at_ns = live->started_ns + ending->duration_ns;
        job->changed_ns = at_ns > before_ns ? at_ns : before_ns;
    }
    jobs_vacate(j, job);
    j->is_file_due = true;
    jobs_tick_on(j);
    /* The end is published after jobs_write_end, which may free JOB. So the texts of JOB are copied
     * first. */
    char reason[JOBS_SENTENCE_MAX];
    json_t *doc = jobs_job_json(j, job);
    struct jobs_news news = {.kind = JOBS_NEWS_JOB,
                             .id = job->id,
                             .doc = doc,
                             .state = job->state,
                             .reason = memcpy(reason, live->reason, sizeof reason),
                             .is_change = true};
    jobs_write_end(j, job);
    if (doc)
        publish_news(j, &news);
    json_decref(doc);
    jobs_kick(j);
}

bool jobs_sync_all(struct jobs *j)
{
    bool is_left = false;
    for (size_t i = j->active_count; i > 0; i--) {
        if (i > j->active_count) /* storing an end may remove several jobs from the table */
            continue;
        struct job *job = j->active[i - 1];
        if (job->live && job->live->is_over && !job->live->ending)
            jobs_end(j, job, &job->live->over);
        else if (job->is_dirty && !write_down(j, job)) {
            is_left = true;
            break; /* the store cannot be written, so the other changes have to wait as well */
        }
    }
    return is_left;
}
