/* The queue: what may start, is started; what cannot, waits, and says for what. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/loop.h"
#include "server/jobs/jobs_kept.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"

enum {
    BURST = 8, /* starts in one go; the loop has others to serve */
    NEXT = 20, /* of the queue, of which it is published what they wait for */
    HOLD_FIRST_MS = 1000,
    HOLD_MAX_MS = 30000,
};

void jobs_kick(struct jobs *j)
{
    uint64_t now_ns = clock_mono_ns();
    if (j->is_started)
        loop_set_timer(j->kick_timer, now_ns > j->hold_ns ? now_ns : j->hold_ns, 0);
}

/* Starting goes wrong for a reason that may pass: later again. */
static void hold(struct jobs *j)
{
    uint64_t wait_ns = j->hold_wait_ns ? j->hold_wait_ns * 2 : HOLD_FIRST_MS * NS_PER_MS;
    j->hold_wait_ns = wait_ns < HOLD_MAX_MS * NS_PER_MS ? wait_ns : HOLD_MAX_MS * NS_PER_MS;
    j->hold_ns = clock_mono_ns() + j->hold_wait_ns;
    jobs_kick(j);
}

/* ---- planning ---- */

static struct plan_job plan_job_of(const struct jobs *j, const struct job *job)
{
    uint64_t all = j->room.memory_bytes;
    bool is_guess = job->memory_from && strcmp(job->memory_from, "learned") == 0;
    return (struct plan_job){
        .id = job->id,
        .priority = job->priority,
        /* what was learned is no reason never to start it */
        .memory_bytes = is_guess && all && job->memory_bytes > all ? all : job->memory_bytes,
        .gpus = job->gpus_wanted,
        .waits = job->after_count > 0};
}

/* Remembers the verdicts; the one that starts, or NULL. */
static struct job *plan_queue(struct jobs *j)
{
    size_t count = j->queue_count;
    AUTO_FREE struct plan_job *plans = calloc(count ? count : 1, sizeof *plans);
    AUTO_FREE struct plan_verdict *verdicts = calloc(count ? count : 1, sizeof *verdicts);
    struct job *first = NULL;
    j->is_planned = plans && verdicts;
    if (!j->is_planned)
        return NULL;
    for (size_t i = 0; i < count; i++)
        plans[i] = plan_job_of(j, j->queue[i]);
    plan_next(&j->room, plans, count, verdicts);
    for (size_t i = 0; i < count; i++) {
        j->queue[i]->verdict = verdicts[i];
        if (verdicts[i].why == PLAN_STARTS)
            first = j->queue[i];
    }
    return first;
}

void jobs_plan(struct jobs *j)
{
    if (!j->is_planned)
        plan_queue(j);
}

void jobs_waits_for(struct jobs *j, const struct job *job, char *ret, size_t size)
{
    const struct plan_job plan_job = plan_job_of(j, job);
    jobs_plan(j);
    enum trouble kind = j->trouble[TROUBLE_STORE][0] ? TROUBLE_STORE : TROUBLE_START;
    if (j->hold_ns > clock_mono_ns() && j->trouble[kind][0])
        snprintf(ret, size, "%s", j->trouble[kind]);
    else if (job->after_count > 0)
        snprintf(ret, size, "waits for job %lld to succeed", (long long)job->after[0]);
    else
        plan_sentence(&j->room, &plan_job, &job->verdict, ret, size);
}

/* ---- starting ---- */

static int launch(struct jobs *j, struct job *job, const struct job_spec *spec, struct err *err)
{
    int gpus[PLAN_GPUS_MAX];
    size_t count = 0;
    for (int i = 0; i < PLAN_GPUS_MAX; i++)
        if (job->live->gpus >> i & 1)
            gpus[count++] = i;
    const struct executor_folder folder = {.name = job->live->folder, .id = job->live->folder_id};
    job->live->spawned_ns = clock_mono_ns();
    return executor_start(&j->executor, job->id, spec, &folder, gpus, count, &job->live->run, err);
}

/* No later try would fare better; somebody else's file or lock in its place (the last two) is the
 * matter of this job alone, and must not hold up those behind it. */
static bool is_hopeless(int r)
{
    return r == -E2BIG || r == -ENAMETOOLONG || r == -EINVAL || r == -ENOTDIR || r == -EISDIR ||
           r == -ELOOP || r == -EBADMSG || r == -EBUSY;
}

static void end_unstarted(struct jobs *j, struct job *job, const char *why)
{
    struct job_ending *ending = job_ending_new(job->live, NULL, why);
    if (ending)
        jobs_end(j, job, ending);
}

void jobs_requeue(struct jobs *j, struct job *job, const char *why)
{
    jobs_trouble_set(j, TROUBLE_START, "jobs cannot be started now: %s", why);
    jobs_vacate(j, job);
    job_unlive(job);
    jobs_enqueue(j, job);
    jobs_change(j, job, JOB_QUEUED, NULL);
    hold(j);
}

static void start_taken(struct jobs *j, struct job *job, const struct job_spec *spec)
{
    struct err err;
    int r = launch(j, job, spec, &err);
    if (r == 0) {
        j->hold_wait_ns = 0;
        jobs_trouble_clear(j, TROUBLE_START);
    } else if (is_hopeless(r)) {
        end_unstarted(j, job, err.text);
    } else {
        jobs_requeue(j, job, err.text);
    }
}

/* The request again, from the store. */
static int read_spec(struct jobs *j, const struct job *job, struct job_spec *ret, struct err *err)
{
    struct store_job row;
    int r = store_get(j->store, job->id, &row, err);
    if (r < 0)
        return r;
    json_t *request = json_parse(row.request, strlen(row.request), err);
    if (!request)
        return -EINVAL;
    r = job_spec_read(request, j->cwd, ret, err);
    json_decref(request);
    return r;
}

/* From the queue to `starting`, durably. False: it stays there. */
static bool take_from_queue(struct jobs *j, struct job *job, const struct job_spec *spec)
{
    job->live = job_live_new(json_incref(spec->doc));
    if (!job->live || jobs_choose_folder(j, job->id, job->name, job->live) < 0) {
        job_unlive(job);
        hold(j);
        return false;
    }
    job->live->gpus = job->verdict.gpus;
    jobs_dequeue(j, job);
    jobs_occupy(j, job);
    if (jobs_change_first(j, job, JOB_STARTING))
        return true;
    jobs_vacate(j, job);
    job_unlive(job);
    jobs_enqueue(j, job);
    hold(j);
    return false;
}

static void start_one(struct jobs *j, struct job *job)
{
    struct job_spec spec = {0};
    struct err why, err;
    int r = read_spec(j, job, &spec, &why);
    if (r == -EINVAL) /* its folder is gone, say */
        r = jobs_end_queued(j, job, JOB_FAILED, why.text, &err);
    else if (r == 0 && take_from_queue(j, job, &spec))
        start_taken(j, job, &spec);
    if (r < 0)
        hold(j);
    job_spec_fini(&spec);
}

/* What those wait for that are next. Not of all: a queue of thousands would be published at every
 * end.
 */
static void publish_waits(struct jobs *j)
{
    jobs_plan(j);
    for (size_t i = 0; i < j->queue_count && i < NEXT; i++) {
        struct job *job = j->queue[i];
        if (job->published_why == job->verdict.why)
            continue;
        job->published_why = job->verdict.why;
        jobs_publish_job(j, job, false);
    }
}

/* True: there may be more. */
static bool start_some(struct jobs *j, uint64_t now_ns)
{
    for (int i = 0; i < BURST; i++) {
        struct job *job = NULL;
        if (now_ns >= j->hold_ns && j->queue_count > 0 && j->room.slots_used < j->room.slots)
            job = plan_queue(j);
        if (!job)
            return false;
        start_one(j, job);
        now_ns = clock_mono_ns();
    }
    return true;
}

void jobs_start_queued(struct jobs *j)
{
    if (!j->is_started)
        return;
    bool is_more = jobs_after_some(j);
    if (start_some(j, clock_mono_ns()) || is_more)
        jobs_kick(j);
    publish_waits(j);
}

void jobs_on_kick(void *user, uint64_t now_ns, uint64_t missed)
{
    (void)now_ns, (void)missed;
    jobs_start_queued(user);
}

/* ---- memory ---- */

static void set_learned(struct jobs *j, struct job *job, uint64_t bytes)
{
    if (job->memory_from && strcmp(job->memory_from, "learned") != 0)
        return;
    job->memory_bytes = bytes;
    job->memory_from = bytes ? "learned" : NULL;
    j->is_planned = false;
}

void jobs_learn_memory(struct jobs *j, struct job *job)
{
    set_learned(j, job, store_learned(j->store, job->name));
}

void jobs_relearn(struct jobs *j, const char *name)
{
    uint64_t bytes = j->queue_count ? store_learned(j->store, name) : 0;
    for (size_t i = 0; i < j->queue_count; i++)
        if (strcmp(j->queue[i]->name, name) == 0)
            set_learned(j, j->queue[i], bytes);
}

/* ---- those that come after others: they go on when those have succeeded, and are cancelled when
 * not. A little at a time: a chain of thousands must not keep the loop. ---- */

enum {
    CANCELS = 16,     /* in one go: each is a commit */
    NEWS_MAX = 65536, /* of ended ones that nobody has looked at yet */
};

/* JOB waits for after[AT], which is in STATE (JOB_STATES: there is none). False: JOB is gone. */
static bool settle(struct jobs *j, struct job *job, size_t at, enum job_state state)
{
    char reason[JOBS_SENTENCE_MAX];
    struct err err;
    long long id = (long long)job->after[at];
    if (state != JOB_STATES && !job_state_is_final(state))
        return true;
    if (state == JOB_SUCCEEDED) {
        job->after[at] = job->after[--job->after_count];
        j->is_planned = false;
        return true;
    }
    if (state == JOB_STATES)
        snprintf(reason, sizeof reason, "job %lld, which comes before it, is not known any more",
                 id);
    else
        snprintf(reason, sizeof reason, "job %lld, which comes before it, %s", id,
                 state == JOB_FAILED      ? "failed"
                 : state == JOB_CANCELLED ? "was cancelled"
                                          : "was lost");
    if (jobs_end_queued(j, job, JOB_CANCELLED, reason, &err) == 0)
        return false;
    j->is_unsettled = true;
    return true;
}

void jobs_after_ended(struct jobs *j, int64_t id, enum job_state state)
{
    if (j->queue_count == 0)
        return;
    if (j->news_count == j->news_cap) {
        size_t cap = j->news_cap ? j->news_cap * 2 : 16;
        struct jobs_ended *grown = cap <= NEWS_MAX ? realloc(j->news, cap * sizeof *grown) : NULL;
        if (!grown) {
            j->is_unsettled = true;
            jobs_tick_on(j);
            return;
        }
        j->news = grown;
        j->news_cap = cap;
    }
    j->news[j->news_count++] = (struct jobs_ended){.id = id, .state = state};
    jobs_kick(j);
}

static size_t index_of(const struct job *job, int64_t id)
{
    size_t at = 0;
    while (at < job->after_count && job->after[at] != id)
        at++;
    return at;
}

bool jobs_after_some(struct jobs *j)
{
    int cancels = 0;
    while (j->news_count > 0 && cancels < CANCELS) {
        const struct jobs_ended first = j->news[0];
        while (j->news_at < j->queue_count && cancels < CANCELS) {
            struct job *job = j->queue[j->news_at];
            size_t at = index_of(job, first.id);
            if (at == job->after_count || settle(j, job, at, first.state))
                j->news_at++;
            else
                cancels++;
        }
        if (j->news_at < j->queue_count)
            break;
        j->news_at = 0;
        memmove(j->news, j->news + 1, --j->news_count * sizeof *j->news);
    }
    if (j->news_count == 0 && j->news_cap > 0) {
        free(j->news);
        j->news = NULL;
        j->news_cap = 0;
    }
    return j->news_count > 0;
}

void jobs_check_all_after(struct jobs *j)
{
    int cancels = 0;
    size_t i = 0;
    j->is_unsettled = false;
    while (i < j->queue_count && !j->is_unsettled && cancels < CANCELS) {
        if (jobs_check_after(j, j->queue[i]))
            i++;
        else
            cancels++;
    }
    if (i < j->queue_count)
        j->is_unsettled = true;
}

bool jobs_check_after(struct jobs *j, struct job *job)
{
    for (size_t at = job->after_count; at > 0; at--)
        if (!settle(j, job, at - 1, jobs_state(j, job->after[at - 1])))
            return false;
    return true;
}
