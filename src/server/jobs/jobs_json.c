/* Converts jobs to JSON as in the API: rows of the store and, for jobs that have not ended, newer
 * values from memory. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "server/jobs/jobs_private.h"
#include "server/jobs/jobs_queue.h"
#include "server/jobs/jobs_state.h"

enum {
    LIST_MAX = 500,
    LIST_DEFAULT = 100,
    /* maximum total size in bytes of the stored requests and facts in a list; without this limit,
     * a list of 500 large jobs would stall the loop */
    LIST_BYTES_MAX = 1 << 20,
};

/* ---- one job ---- */

static json_t *time_json(uint64_t wall_ns)
{
    return wall_ns ? json_seconds(wall_ns) : json_null();
}

/* Lists the names of environment variables, but not their values, which may be secret. */
static json_t *names_json(json_t *env)
{
    json_t *names = json_array(), *value;
    const char *name;
    json_object_foreach(env, name, value)
    {
        json_array_append_new(names, json_text0(name));
    }
    return names;
}

/* Copies the members of FROM that KEYS lists; a missing member becomes null. FROM may be NULL. */
static void copy_keys(json_t *doc, const json_t *from, const char *const *keys)
{
    for (; *keys; keys++) {
        json_t *v = json_object_get(from, *keys);
        json_object_set_new(doc, *keys, v ? json_incref(v) : json_null());
    }
}

static void put_request(json_t *doc, const json_t *request)
{
    static const char *const keys[] = {"command", "cwd",   "options", "priority",
                                       "after",   "limit", "slurm",   NULL};
    copy_keys(doc, request, keys);
    json_object_set_new(doc, "env", names_json(json_object_get(request, "env")));
    json_t *gpus = json_object_get(request, "gpus");
    json_object_set_new(doc, "gpus_wanted", gpus ? json_incref(gpus) : json_integer(0));
}

static json_t *gpu_bits_json(uint64_t gpus)
{
    json_t *list = json_array();
    for (int i = 0; i < PLAN_GPUS_MAX; i++)
        if (gpus >> i & 1)
            json_array_append_new(list, json_integer(i));
    return list;
}

static json_t *run_dir_json(const struct jobs *j, const char *folder)
{
    char path[4096];
    if (!folder || !folder[0])
        return json_null();
    snprintf(path, sizeof path, "%s/%s", j->runs_path, folder);
    return json_text0(path);
}

static json_t *row_json(const struct jobs *j, const struct store_job *row)
{
    uint64_t ended_ns = row->ended_ns;
    if (ended_ns && ended_ns < row->started_ns)
        ended_ns = row->started_ns;
    json_t *memory = row->memory_bytes ? json_u64(row->memory_bytes) : json_null();
    json_t *from = row->memory_bytes ? json_text0(row->memory_from) : json_null();
    return json_pack("{s:I,s:o,s:s,s:o,s:n,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "id",
                     (json_int_t)row->id, "name", json_text0(row->name), "state",
                     job_state_word(row->state), "reason", json_text0(row->reason), "waits_for",
                     "memory_bytes", memory, "memory_from", from, "gpus",
                     gpu_bits_json(plan_gpu_bits(row->gpus)), "submitted_s",
                     time_json(row->submitted_ns), "started_s", time_json(row->started_ns),
                     "ended_s", time_json(ended_ns), "run_dir", run_dir_json(j, row->run_dir),
                     "rerun_of", row->rerun_of ? json_integer(row->rerun_of) : json_null());
}

static const char *const end_keys[] = {"pid",        "segment",  "status",    "cause",
                                       "cause_kind", "memory",   "verdict",   "spark",
                                       "given_back", "progress", "log_bytes", NULL};

/* Replaces values of the row by those in memory, which are newer. */
static void overlay(struct store_job *row, const struct job *job)
{
    const struct job_live *live = job->live;
    row->state = job->state;
    row->memory_bytes = job->memory_bytes;
    row->memory_from = job->memory_from;
    row->reason = live && live->reason[0] ? live->reason : NULL;
    row->started_ns = live ? live->started_ns : 0;
    row->ended_ns = job_state_is_final(job->state) ? job->changed_ns : 0;
    row->run_dir = live && job->state != JOB_STARTING ? live->folder.name : NULL;
}

static json_t *build(struct jobs *j, const struct store_job *row, const json_t *request,
                     const json_t *end, const struct job *job)
{
    json_t *doc = row_json(j, row);
    put_request(doc, request);
    if (job && job->live && !job->live->ending) {
        codec_put(job_facts_codec, &job->live->facts, doc);
        json_object_set_new(doc, "spark", spark_json(&job->live->spark));
    } else {
        copy_keys(doc, end, end_keys);
    }
    if (job && job->live)
        json_object_set_new(doc, "gpus", gpu_bits_json(job->live->gpus));
    if (job && job->state == JOB_QUEUED) {
        char why[JOBS_SENTENCE_MAX];
        jobs_waits_for(j, job, why, sizeof why);
        json_object_set_new(doc, "waits_for", json_text0(why));
    }
    return doc;
}

static json_t *parse(const char *text)
{
    return text ? json_parse(text, strlen(text), NULL) : NULL;
}

json_t *jobs_row_json(struct jobs *j, const struct store_job *row, const struct job *job)
{
    struct store_job shown = *row;
    json_t *request = job && job->live ? json_incref(job->live->request) : parse(row->request);
    json_t *end = job ? job->live && job->live->ending ? json_incref(job->live->ending->end) : NULL
                      : parse(row->end);
    if (job)
        overlay(&shown, job);
    json_t *doc = build(j, &shown, request, end, job);
    json_decref(request);
    json_decref(end);
    return doc;
}

/* Converts a job to JSON. Reads the store only if the job has not been started. */
json_t *jobs_job_json(struct jobs *j, const struct job *job)
{
    struct store_job row;
    if (job->live) {
        row = (struct store_job){.id = job->id,
                                 .name = job->name,
                                 .rerun_of = job->rerun_of,
                                 .submitted_ns = job->submitted_ns};
    } else if (store_get(j->store, job->id, &row, NULL) < 0) {
        return NULL;
    }
    return jobs_row_json(j, &row, job);
}

int jobs_get(struct jobs *j, int64_t id, bool with_changes, json_t **ret, struct err *err)
{
    struct store_job row;
    json_t *changes = NULL;
    int r = store_get(j->store, id, &row, err);
    if (r < 0)
        return r;
    json_t *doc = jobs_row_json(j, &row, jobs_find(j, id));
    r = with_changes ? store_changes(j->store, id, &changes, err) : 0;
    if (r == 0 && with_changes)
        json_object_set_new(doc, "changes", changes);
    if (r < 0)
        json_decref(doc);
    else
        *ret = doc;
    return r;
}

int jobs_request(struct jobs *j, int64_t id, json_t **ret, struct err *err)
{
    struct store_job row;
    int r = store_get(j->store, id, &row, err);
    if (r < 0)
        return r;
    *ret = json_parse(row.request, strlen(row.request), err);
    return *ret ? 0 : -EIO;
}

enum job_state jobs_state(struct jobs *j, int64_t id)
{
    struct store_job row;
    const struct job *job = jobs_find(j, id);
    if (job)
        return job->state;
    return store_get(j->store, id, &row, NULL) < 0 ? JOB_STATES : row.state;
}

/* ---- lists ---- */

struct listing {
    struct jobs *j;
    json_t *list;
    unsigned states;
    unsigned limit;
    size_t bytes; /* total size of the stored requests and facts so far */
    bool is_more;
};

static int list_row(void *user, const struct store_job *row)
{
    struct listing *l = user;
    /* the sum includes only the texts whose length a client or a job can choose */
    l->bytes += strlen(row->request) + (row->end ? strlen(row->end) : 0);
    if (json_array_size(l->list) == l->limit ||
        (json_array_size(l->list) > 0 && l->bytes > LIST_BYTES_MAX)) {
        l->is_more = true;
        return 1;
    }
    json_array_append_new(l->list, jobs_row_json(l->j, row, jobs_find(l->j, row->id)));
    return 0;
}

int jobs_list(struct jobs *j, const struct store_filter *wanted, json_t **ret, struct err *err)
{
    unsigned limit = wanted->limit ? wanted->limit : LIST_DEFAULT;
    struct store_filter filter = *wanted;
    struct listing l = {.j = j, .list = json_array(), .limit = limit < LIST_MAX ? limit : LIST_MAX};
    filter.limit = l.limit + 1;
    jobs_plan(j); /* jobs_plan is called here, because list_row must not call the store */
    int r = store_list(j->store, &filter, list_row, &l, err);
    if (r < 0) {
        json_decref(l.list);
        return r;
    }
    *ret = json_pack("{s:o,s:b}", "jobs", l.list, "more", (int)l.is_more);
    return *ret ? 0 : err_set(err, -ENOMEM, "out of memory");
}

/* ---- the server ---- */

json_t *jobs_room_json(const struct jobs *j)
{
    const struct plan_room *room = &j->room;
    return json_pack("{s:{s:i,s:i},s:{s:o,s:o},s:{s:i,s:i,s:o},s:I}", "slots", "all",
                     (int)room->slots, "used", (int)room->slots_used, "memory", "all_bytes",
                     room->memory_bytes ? json_u64(room->memory_bytes) : json_null(), "used_bytes",
                     json_u64(room->memory_used), "gpus", "all", (int)room->gpus, "used",
                     __builtin_popcountll(room->gpus_used), "in_use",
                     gpu_bits_json(room->gpus_used), "queued", (json_int_t)j->queue_count);
}

json_t *jobs_trouble(const struct jobs *j)
{
    json_t *list = json_array();
    for (size_t i = 0; i < TROUBLES; i++)
        if (j->trouble[i][0])
            json_array_append_new(list, json_text0(j->trouble[i]));
    return list;
}

void jobs_metrics(struct jobs *j, struct jobs_metrics *ret)
{
    *ret = (struct jobs_metrics){
        .room = &j->room,
        .running = calloc(j->active_count ? j->active_count : 1, sizeof *ret->running)};
    store_count(j->store, ret->by_state);
    store_counters(j->store, &ret->counters, &ret->counter_count, NULL);
    for (size_t i = 0; ret->running && i < j->active_count; i++) {
        const struct job *job = j->active[i];
        if (job->live && !job->live->ending)
            ret->running[ret->running_count++] =
                (struct jobs_running){job->id, job->live->started_ns, &job->live->facts};
    }
}

void jobs_metrics_fini(struct jobs_metrics *m)
{
    free(m->counters);
    free(m->running);
}
