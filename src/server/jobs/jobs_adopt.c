/* Adoption: when a server starts, it determines which jobs of an earlier server are queued, are
 * running, or have ended. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/io.h"
#include "base/json.h"
#include "base/number.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"

/* Reads a stored request without validating it again: the server needs it even if the working
 * folder was removed. */
static void read_request(const json_t *request, struct job_spec *ret)
{
    const json_t *after = json_object_get(request, "after");
    *ret = (struct job_spec){.gpus = (int)json_integer_value(json_object_get(request, "gpus")),
                             .priority =
                                 (int)json_integer_value(json_object_get(request, "priority"))};
    for (size_t i = 0; i < json_array_size(after) && i < JOB_AFTER_MAX; i++)
        ret->after[ret->after_count++] = json_integer_value(json_array_get(after, i));
}

static const char *known_source(const char *word)
{
    static const char *const words[] = {"declared", "limit", "learned"};
    for (size_t i = 0; word && i < sizeof words / sizeof *words; i++)
        if (strcmp(words[i], word) == 0)
            return words[i];
    return NULL;
}

static bool is_cancelled(const char *end)
{
    json_t *doc = end ? json_parse(end, strlen(end), NULL) : NULL;
    bool is_asked = json_is_true(json_object_get(doc, "asked"));
    json_decref(doc);
    return is_asked;
}

static int add_live(struct job *job, const struct store_job *row, json_t *request)
{
    struct job_live *live = job_live_new(json_incref(request));
    if (!live)
        return -ENOMEM;
    jobs_row_folder(row, &live->folder);
    if (!row->run_dir)
        job_spec_folder(row->id, row->name, live->folder.name);
    live->gpus = plan_gpu_bits(row->gpus);
    live->started_ns = row->started_ns;
    live->is_cancelled = is_cancelled(row->end);
    snprintf(live->reason, sizeof live->reason, "%s", row->reason ? row->reason : "");
    job->live = live;
    return 0;
}

/* Follows a job. Its slot, memory and GPUs stay occupied until the executor reports that the job
 * has ended or was never started. */
static int adopt_one(struct jobs *j, struct job *job)
{
    job->live->run = j->executor.kind->follow(&j->executor, job->id, &job->live->folder);
    if (!job->live->run)
        return -ENOMEM;
    jobs_occupy(j, job);
    job->live->is_alone = false; /* other jobs may have run while no server was running */
    if (job->live->is_cancelled)
        executor_cancel(job->live->run, job->live->reason, j->options.grace_ns);
    return 0;
}

struct reading {
    struct jobs *j;
    int result;
};

static int adopt_row(void *user, const struct store_job *row)
{
    struct reading *reading = user;
    struct job_spec spec;
    /* the job was submitted to this server and is already in memory */
    if (jobs_find(reading->j, row->id))
        return 0;
    json_t *request = json_parse(row->request, strlen(row->request), NULL);
    read_request(request, &spec);
    spec.memory_bytes = row->memory_bytes;
    spec.memory_from = known_source(row->memory_from);
    struct job *job = job_new(row, &spec);
    int r = job ? 0 : -ENOMEM;
    if (r == 0 && row->state != JOB_QUEUED)
        r = add_live(job, row, request);
    json_decref(request);
    if (r == 0)
        r = jobs_insert(reading->j, job);
    if (r < 0)
        job_free(job);
    else if (job->live)
        r = adopt_one(reading->j, job);
    reading->result = r;
    return r < 0;
}

/* ---- locks of jobs that have ended ---- */

/* Reports locks that are held although the store has no row for their jobs. The store may have been
 * moved away. The locks are kept, so that the running jobs are found once the store is restored. */
static void report_strays(struct jobs *j, unsigned count, int64_t one)
{
    if (count)
        jobs_trouble_set(
            j, TROUBLE_STRAYS,
            "running jobs that are not in the job store: %u, for example job %lld; their memory is "
            "not reserved",
            count, (long long)one);
    else
        jobs_trouble_clear(j, TROUBLE_STRAYS);
}

void jobs_sweep_locks(struct jobs *j)
{
    unsigned strays = 0;
    int64_t stray = 0;
    DIR *dir = io_open_folder(j->locks_fd, ".");
    if (!dir)
        return;
    for (const struct dirent *e; (e = readdir(dir));) {
        int64_t id;
        if (number_parse_i64(e->d_name, strlen(e->d_name), &id) < 0 || jobs_find(j, id))
            continue;
        int held = executor_is_held(&j->executor, id);
        /* the lock is free, or the file is not a lock file */
        if (held == 0 || held == -ELOOP || held == -EBADMSG) {
            unlinkat(j->locks_fd, e->d_name, 0);
        } else if (held > 0) {
            strays++;
            stray = id;
        }
    }
    closedir(dir);
    report_strays(j, strays, stray);
}

/* Adds jobs to the queue in the order of their ids, so that each job comes after the jobs that
 * it waits for. */
static void fill_queue(struct jobs *j)
{
    for (size_t i = 0; i < j->active_count;) {
        struct job *job = j->active[i];
        int64_t id = job->id;
        if (job->state == JOB_QUEUED && !jobs_is_queued(j, job)) {
            jobs_learn_memory(j, job);
            jobs_enqueue(j, job);
            (void)jobs_settle(j, job);
        }
        i += i < j->active_count && j->active[i]->id == id;
    }
}

int jobs_adopt(struct jobs *j, struct err *err)
{
    struct reading reading = {.j = j};
    const struct store_filter filter = {.states = JOB_ACTIVE, .oldest_first = true};
    int r = store_list(j->store, &filter, adopt_row, &reading, err);
    if (r >= 0 && reading.result < 0)
        r = err_set(err, reading.result, "cannot read the job store: %s",
                    strerror(-reading.result));
    if (r < 0)
        return r;
    jobs_sweep_locks(j);
    fill_queue(j);
    return 0;
}
