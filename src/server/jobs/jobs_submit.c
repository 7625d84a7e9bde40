/* Submits a job: checks, stores and queues it, and starts it if it can start at once. */
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"

#include <errno.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/text.h"
#include "server/jobs/workers.h"

enum { QUEUE_MAX = 100000 };

static int check_after(struct jobs *j, const struct job_spec *spec, struct err *err)
{
    for (size_t i = 0; i < spec->after_count; i++)
        if (jobs_state(j, spec->after[i]) == JOB_STATES)
            return err_set(err, -EINVAL, "after: no such job: %lld", (long long)spec->after[i]);
    return 0;
}

static int check_room(const struct jobs *j, const struct job_spec *spec, struct err *err)
{
    char sentence[JOBS_SENTENCE_MAX];
    const struct plan_room *room = &j->room;
    const struct plan_job job = {.memory_bytes = spec->memory_bytes,
                                 .gpus = j->executor.kind->owns_machine ? (unsigned)spec->gpus : 0};
    const struct plan_verdict never = {.why = PLAN_NEVER};
    if (j->queue_count >= QUEUE_MAX)
        return err_set(err, -EAGAIN, "the queue is full (%d jobs); submit again later", QUEUE_MAX);
    if (job.gpus <= room->gpus && (!room->memory_bytes || job.memory_bytes <= room->memory_bytes))
        return 0;
    plan_sentence(room, &job, &never, sentence, sizeof sentence);
    return err_set(err, -EINVAL, "%s", sentence);
}

static int store_new(struct jobs *j, const struct store_job *row, int64_t *ret_id, struct err *err)
{
    int r = store_add(j->store, row, ret_id, err);
    if (r == 0)
        r = jobs_ids_note(j, *ret_id, err);
    if (r == 0)
        r = store_count_up(j->store, "submitted", 1, err);
    return r;
}

/* Stores and queues JOB and, if it can start at once, takes it from the queue again, all in one
 * commit. */
static int accept_job(struct jobs *j, struct job *job, struct store_job *row,
                      const struct job_spec *spec, bool *ret_taken, struct err *err)
{
    int r = store_begin(j->store, err);
    if (r < 0)
        return r;
    r = store_new(j, row, &job->id, err);
    if (r == 0 && (jobs_insert(j, job) < 0 || jobs_enqueue(j, job) < 0))
        r = err_set(err, -ENOMEM, "out of memory");
    *ret_taken = r == 0 && jobs_take_new(j, job, spec);
    return store_end(j->store, r, err);
}

static int accept_spec(struct jobs *j, const struct job_spec *spec, int64_t rerun_of,
                       int64_t *ret_id, struct err *err)
{
    AUTO_FREE char *request = json_dumps(spec->doc, JSON_COMPACT);
    struct store_job row = {.state = JOB_QUEUED,
                            .name = spec->name,
                            .priority = spec->priority,
                            .rerun_of = rerun_of,
                            .request = request,
                            .submitted_ns = clock_wall_ns()};
    bool is_taken = false;
    int r = check_after(j, spec, err);
    if (r == 0)
        r = j->executor.kind->check(&j->executor, spec, err);
    if (r == 0)
        r = check_room(j, spec, err);
    if (r < 0)
        return r;
    struct job *job = request ? job_new(&row, spec) : NULL;
    if (!job)
        return err_set(err, -ENOMEM, "out of memory");
    jobs_learn_memory(j, job);
    row.memory_bytes = job->memory_bytes;
    row.memory_from = job->memory_from;
    r = accept_job(j, job, &row, spec, &is_taken, err);
    if (r < 0) {
        if (r != -EINVAL)
            jobs_trouble_set(j, TROUBLE_STORE, "a job could not be accepted: %s", err->text);
        jobs_vacate(j, job);
        jobs_delete(j, job);
        return r;
    }
    jobs_trouble_clear(j, TROUBLE_STORE);
    *ret_id = job->id;
    if (is_taken) {
        jobs_launch(j, job, spec);
        return 0;
    }
    jobs_publish_job(j, job, true);
    if (jobs_settle(j, job) == 0)
        jobs_start_queued(j);
    return 0;
}

/* ---- the working folder ---- */

static void check_cwd(void *user)
{
    struct jobs_submission *s = user;
    s->result = job_spec_check_cwd(s->spec.cwd, &s->err);
}

static void on_cwd_checked(void *user)
{
    struct jobs_submission *s = user;
    json_t *job = NULL;
    int64_t id = 0;
    int r = s->result;
    if (r == 0)
        r = accept_spec(s->jobs, &s->spec, s->rerun_of, &id, &s->err);
    if (r == 0)
        r = jobs_get(s->jobs, id, false, &job, &s->err);
    s->done(s, r, job, &s->err);
}

static void free_submission(void *user)
{
    struct jobs_submission *s = user;
    job_spec_fini(&s->spec);
    s->free(s);
}

static int check_and_submit(struct jobs *j, struct jobs_submission *s, struct task **ret)
{
    static const struct task_kind kind = {check_cwd, on_cwd_checked, free_submission};
    /* a number other than 0 that is the same for equal paths */
    int64_t key = (int64_t)(text_hash(TEXT_HASH_EMPTY, s->spec.cwd, strlen(s->spec.cwd)) >> 1) + 1;
    return jobs_task(j, j->cwd_workers, &kind, key, s, ret);
}

/* Gets the request of the job to rerun. */
static int request_again(struct jobs *j, int64_t id, json_t **ret, struct err *err)
{
    json_t *request;
    int r = jobs_request(j, id, &request, err);
    if (r < 0)
        return r;
    if (json_array_size(json_object_get(request, "command")) == 0) {
        json_decref(request);
        return err_set(err, -EINVAL,
                       "job %lld cannot be rerun: it was imported without its command",
                       (long long)id);
    }
    /* "after" is cleared, because the jobs for which the first run waited have ended */
    json_object_set_new(request, "after", json_array());
    *ret = request;
    return 0;
}

int jobs_submit(struct jobs *j, const json_t *request, int64_t rerun_of, struct jobs_submission *s,
                struct task **ret)
{
    struct err err = {""};
    json_t *again = NULL;
    int r = rerun_of ? request_again(j, rerun_of, &again, &err) : 0;
    s->jobs = j;
    s->rerun_of = rerun_of;
    *ret = NULL;
    if (r == 0)
        r = job_spec_read(rerun_of ? again : request, j->cwd, &s->spec, &err);
    json_decref(again);
    if (r == 0)
        return check_and_submit(j, s, ret);
    s->done(s, r, NULL, &err);
    free_submission(s);
    return 0;
}
