/* The queue: plans and starts jobs, and reports why queued jobs wait. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/loop.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"
#include "server/jobs/runs_folder.h"
#include "server/jobs/workers.h"

enum {
    BURST = 8, /* maximum number of jobs started in one round of the loop */
    /* for this many jobs at the head of the queue, a new reason for waiting is published */
    NEXT = 20,
    HOLD_FIRST_MS = 1000,
    HOLD_MAX_MS = 30000,
    SILENT_S = 10, /* a folder that is unreachable for this long is reported */
};

void jobs_kick(struct jobs *j)
{
    uint64_t now_ns = clock_mono_ns();
    if (j->is_started)
        loop_set_timer(j->kick_timer, now_ns > j->hold_ns ? now_ns : j->hold_ns, 0);
}

/* Delays the next start after a temporary failure. The delay doubles with each failure. */
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
        /* A learned size is only an estimate. It must not prevent a job from ever starting. */
        .memory_bytes = is_guess && all && job->memory_bytes > all ? all : job->memory_bytes,
        .gpus = j->executor.kind->owns_machine ? job->gpus_wanted : 0,
        .waits = job->after_count > 0};
}

/* Plans the whole queue. Returns the job that may start, or NULL. */
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
    const bool is_closed = j->trouble[TROUBLE_FOLDER][0];
    enum trouble kind = j->trouble[TROUBLE_STORE][0] ? TROUBLE_STORE
                        : is_closed                  ? TROUBLE_FOLDER
                                                     : TROUBLE_START;
    if ((j->hold_ns > clock_mono_ns() || j->name_task || is_closed) && j->trouble[kind][0])
        snprintf(ret, size, "%s", j->trouble[kind]);
    else if (job->after_count > 0)
        snprintf(ret, size, "waits for job %lld to succeed", (long long)job->after[0]);
    else
        plan_sentence(&j->room, &plan_job, &job->verdict, ret, size);
}

/* ---- starting ---- */

/* True if the start of a job has failed for good, so that the job must not hold up the queue.
 * -ELOOP and -EBADMSG mean that the job's lock is not a regular file, -EBUSY that another process
 * holds it. */
static bool is_hopeless(int r)
{
    return r == -E2BIG || r == -ENAMETOOLONG || r == -EINVAL || r == -ENOTDIR || r == -EISDIR ||
           r == -ELOOP || r == -EBADMSG || r == -EBUSY;
}

void jobs_requeue(struct jobs *j, struct job *job, const char *why)
{
    jobs_vacate(j, job);
    job_unlive(job);
    jobs_enqueue(j, job);
    jobs_change(j, job, JOB_QUEUED, NULL);
    if (!why) {
        jobs_kick(j);
        return;
    }
    jobs_trouble_set(j, TROUBLE_START, "cannot start jobs: %s", why);
    hold(j);
}

void jobs_launch(struct jobs *j, struct job *job, const struct job_spec *spec)
{
    struct err err;
    jobs_publish_job(j, job, true);
    job->live->spawned_ns = clock_mono_ns();
    int r = j->executor.kind->start(&j->executor, job->id, spec, &job->live->folder,
                                    job->live->gpus, &job->live->run, &err);
    if (r == 0) {
        j->hold_wait_ns = 0;
        jobs_trouble_clear(j, TROUBLE_START);
    } else if (is_hopeless(r)) {
        jobs_end(j, job, &(struct executor_end){.no_start = err.text});
    } else {
        jobs_requeue(j, job, err.text);
    }
}

/* Reads a job's request from the store. */
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
    /* the Slurm batch script checks the folder on the node */
    if (r == 0 && j->executor.kind->owns_machine)
        r = job_spec_check_cwd(ret->cwd, err);
    return r;
}

void jobs_launch_again(struct jobs *j, struct job *job)
{
    struct job_spec spec = {0};
    struct err err = {""};
    int r = read_spec(j, job, &spec, &err);
    if (r == 0)
        jobs_launch(j, job, &spec);
    else if (r == -EINVAL)
        jobs_end(j, job, &(struct executor_end){.no_start = err.text});
    else
        jobs_requeue(j, job, err.text);
    job_spec_fini(&spec);
}

/* A check of whether a name exists in the folder that contains all run folders. */
struct name_check {
    struct jobs *j;
    int64_t id;
    struct runs_folder *runs;
    char name[JOB_FOLDER_MAX];
    bool is_taken;
};

static void run_name_check(void *user)
{
    struct name_check *c = user;
    struct stat st;
    c->is_taken = fstatat(runs_folder_fd(c->runs), c->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
}

static void on_name_checked(void *user)
{
    const struct name_check *c = user;
    struct job *job = jobs_find(c->j, c->id);
    c->j->name_task = NULL;
    if (job) {
        job->is_name_checked = true;
        job->is_name_taken = c->is_taken;
    }
    jobs_kick(c->j);
}

/* Checks whether the name of the job's run folder is already in use. Returns false while the result
 * is unknown: access to a shared folder may hang, so a thread makes the check. Jobs are started one
 * after another, so at most one check is in progress. */
static bool check_name(struct jobs *j, struct job *job)
{
    static const struct task_kind kind = {run_name_check, on_name_checked, free};
    if (job->is_name_checked || j->name_task || !runs_folder_is_open(j->runs))
        return job->is_name_checked;
    struct name_check *check = malloc(sizeof *check);
    if (check) {
        *check = (struct name_check){.j = j, .id = job->id, .runs = j->runs};
        job_spec_folder(job->id, job->name, check->name);
    }
    if (!check || jobs_task(j, j->workers, &kind, 0, check, &j->name_task) < 0)
        hold(j);
    j->name_ns = clock_mono_ns();
    jobs_tick_on(j);
    return job->is_name_checked;
}

void jobs_check_silence(struct jobs *j, uint64_t now_ns)
{
    if (j->name_task && now_ns - j->name_ns >= SILENT_S * NS_PER_S)
        jobs_trouble_set(j, TROUBLE_START, "cannot start jobs: the folder %s is unreachable",
                         j->runs_path);
}

/* Changes JOB from queued to starting, and stores the change. Returns false if the job stays
 * queued. */
static bool take_from_queue(struct jobs *j, struct job *job, const struct job_spec *spec)
{
    job->live = job_live_new(json_incref(spec->doc));
    job->is_name_checked = false; /* each start needs a new check */
    if (!job->live || jobs_choose_folder(job, job->live) < 0) {
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

bool jobs_take_new(struct jobs *j, struct job *job, const struct job_spec *spec)
{
    return job->after_count == 0 && j->is_started && clock_mono_ns() >= j->hold_ns &&
           plan_queue(j) == job && check_name(j, job) && take_from_queue(j, job, spec);
}

static void start_one(struct jobs *j, struct job *job)
{
    struct job_spec spec = {0};
    struct err why, err;
    int r = read_spec(j, job, &spec, &why);
    if (r == -EINVAL) /* -EINVAL means, for example, that the working folder was removed */
        r = jobs_end_queued(j, job, JOB_FAILED, why.text, &err);
    else if (r == 0 && take_from_queue(j, job, &spec))
        jobs_launch(j, job, &spec);
    if (r < 0)
        hold(j);
    job_spec_fini(&spec);
}

/* Publishes why the first jobs of the queue wait. A long queue is not published completely, because
 * the end of each job would then cause thousands of messages. */
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

/* Starts queued jobs. Returns true if more jobs may be able to start. */
static bool start_some(struct jobs *j, uint64_t now_ns)
{
    for (int i = 0; i < BURST; i++) {
        struct job *job = NULL;
        if (now_ns >= j->hold_ns && j->queue_count > 0 && j->room.slots_used < j->room.slots)
            job = plan_queue(j);
        if (!job || !check_name(j, job))
            return false;
        start_one(j, job);
        now_ns = clock_mono_ns();
    }
    return true;
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

/* ---- jobs that wait for other jobs ----
 *
 * A job that waits for other jobs starts once all of them have succeeded. It is cancelled if one of
 * them has ended without success. */

/* Maximum number of jobs cancelled in one round of the loop. Each cancel is a commit, and thousands
 * of jobs may wait for one another. */
enum { CANCELS = 16 };

static int cancel_after(struct jobs *j, struct job *job, int64_t id, enum job_state state)
{
    char reason[JOBS_SENTENCE_MAX];
    struct err err;
    snprintf(reason, sizeof reason, "job %lld, which this job depends on, %s", (long long)id,
             state == JOB_FAILED      ? "failed"
             : state == JOB_CANCELLED ? "was cancelled"
             : state == JOB_LOST      ? "was lost"
                                      : "was removed");
    return jobs_end_queued(j, job, JOB_CANCELLED, reason, &err);
}

int jobs_settle(struct jobs *j, struct job *job)
{
    for (size_t at = job->after_count; at > 0; at--) {
        int64_t id = job->after[at - 1];
        enum job_state state = jobs_state(j, id);
        if (state != JOB_STATES && !job_state_is_final(state))
            continue;
        if (state != JOB_SUCCEEDED) {
            int r = cancel_after(j, job, id, state);
            return r < 0 ? r : 1;
        }
        job->after[at - 1] = job->after[--job->after_count];
        j->is_planned = false;
    }
    return 0;
}

/* Checks jobs that wait for others. Returns true if there is more to do immediately. Changes that
 * could not be stored are retried after a second. */
static bool settle_queue(struct jobs *j)
{
    int cancels = 0, r = 0;
    size_t i = 0;
    while (j->is_unsettled && i < j->queue_count && cancels < CANCELS && r >= 0) {
        r = jobs_settle(j, j->queue[i]);
        i += r == 0;
        cancels += r > 0;
    }
    j->is_unsettled = j->is_unsettled && i < j->queue_count;
    if (r < 0)
        jobs_tick_on(j);
    return j->is_unsettled && r >= 0;
}

void jobs_start_queued(struct jobs *j)
{
    if (!j->is_started)
        return;
    bool is_more = settle_queue(j);
    if (start_some(j, clock_mono_ns()) || is_more)
        jobs_kick(j);
    publish_waits(j);
}

void jobs_on_kick(void *user, uint64_t now_ns)
{
    (void)now_ns;
    jobs_start_queued(user);
}
