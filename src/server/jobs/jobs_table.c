/* The table of jobs that have not ended, by id and in the order of the queue. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/text.h"
#include "server/jobs/jobs_state.h"
#include "server/jobs/jobs_private.h"

/* Returns the index of JOB in the sorted list V, or the index at which to insert it. */
static size_t job_place(struct job *const *v, size_t count, const struct job *job,
                        bool (*comes_before)(const struct job *a, const struct job *b))
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (comes_before(v[middle], job))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool by_id(const struct job *a, const struct job *b)
{
    return a->id < b->id;
}

static bool by_turn(const struct job *a, const struct job *b)
{
    return a->priority != b->priority ? a->priority > b->priority : a->id < b->id;
}

static int put_job(struct job ***v, size_t *count, size_t *cap, size_t at, struct job *job)
{
    if (!ARRAY_ROOM(*v, *count, *cap))
        return -ENOMEM;
    memmove(*v + at + 1, *v + at, (*count - at) * sizeof(struct job *));
    (*v)[at] = job;
    ++*count;
    return 0;
}

static void take_out_job(struct job ***v, size_t *count, size_t *cap, size_t at)
{
    --*count;
    memmove(*v + at, *v + at + 1, (*count - at) * sizeof(struct job *));
    if (*cap > 64 && *count < *cap / 4) { /* frees the memory of a queue that was once long */
        struct job **less = realloc(*v, *cap / 2 * sizeof(struct job *));
        if (less) {
            *v = less;
            *cap /= 2;
        }
    }
}

struct job *jobs_find(const struct jobs *j, int64_t id)
{
    const struct job key = {.id = id};
    size_t at = job_place(j->active, j->active_count, &key, by_id);
    return at < j->active_count && j->active[at]->id == id ? j->active[at] : NULL;
}

int jobs_insert(struct jobs *j, struct job *job)
{
    size_t at = job_place(j->active, j->active_count, job, by_id);
    return put_job(&j->active, &j->active_count, &j->active_cap, at, job);
}

void jobs_delete(struct jobs *j, struct job *job)
{
    size_t at = job_place(j->active, j->active_count, job, by_id);
    jobs_dequeue(j, job);
    if (at < j->active_count && j->active[at] == job)
        take_out_job(&j->active, &j->active_count, &j->active_cap, at);
    job_free(job);
}

int jobs_enqueue(struct jobs *j, struct job *job)
{
    size_t at = job_place(j->queue, j->queue_count, job, by_turn);
    j->is_planned = false;
    return put_job(&j->queue, &j->queue_count, &j->queue_cap, at, job);
}

bool jobs_is_queued(const struct jobs *j, const struct job *job)
{
    size_t at = job_place(j->queue, j->queue_count, job, by_turn);
    return at < j->queue_count && j->queue[at] == job;
}

void jobs_dequeue(struct jobs *j, struct job *job)
{
    size_t at = job_place(j->queue, j->queue_count, job, by_turn);
    if (!jobs_is_queued(j, job))
        return;
    j->is_planned = false;
    take_out_job(&j->queue, &j->queue_count, &j->queue_cap, at);
}

/* ---- one job ---- */

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

struct job *job_new(const struct store_job *row, const struct job_spec *spec)
{
    struct job *job = calloc(1, sizeof *job);
    char *name = strdup(row->name ? row->name : "");
    int64_t *after = spec->after_count ? calloc(spec->after_count, sizeof *after) : NULL;
    if (!job || !name || (spec->after_count && !after)) {
        free(job);
        free(name);
        free(after);
        return NULL;
    }
    *job = (struct job){.id = row->id,
                        .state = row->state,
                        .priority = spec->priority,
                        .gpus_wanted = (unsigned)spec->gpus,
                        .memory_bytes = spec->memory_bytes,
                        .memory_from = spec->memory_from,
                        .name = name,
                        .rerun_of = row->rerun_of,
                        .submitted_ns = row->submitted_ns,
                        .after = after,
                        .after_count = spec->after_count,
                        .verdict = {.why = PLAN_WAITS_TURN},
                        .published_why = PLAN_WAITS_TURN,
                        .changed_ns = larger(row->started_ns, row->submitted_ns),
                        .boot_ns = clock_boot_ns()};
    job->wall_ns = larger(clock_wall_ns(), job->changed_ns);
    if (after)
        memcpy(after, spec->after, spec->after_count * sizeof *after);
    return job;
}

struct job_live *job_live_new(json_t *request)
{
    struct job_live *live = calloc(1, sizeof *live);
    if (!live) {
        json_decref(request);
        return NULL;
    }
    live->request = request;
    live->is_alone = true;
    spark_init(&live->spark);
    live->facts.has_segment = live->facts.has_log_bytes = true;
    return live;
}

/* Chooses the folder's name. If the name is in use, for example by a user's folder, appends part of
 * the signature. */
int jobs_choose_folder(const struct job *job, struct job_live *live)
{
    int r = io_random_hex((JOB_FOLDER_ID_SIZE - 1) / 2, live->folder.id);
    if (r < 0)
        return r;
    job_spec_folder(job->id, job->name, live->folder.name);
    if (job->is_name_taken) {
        size_t len = strlen(live->folder.name);
        snprintf(live->folder.name + len, sizeof live->folder.name - len, "-%.8s", live->folder.id);
    }
    return 0;
}

void jobs_row_folder(const struct store_job *row, struct job_folder *ret)
{
    text_copy(ret->name, sizeof ret->name, row->run_dir);
    text_copy(ret->id, sizeof ret->id, row->folder_id);
}

void job_unlive(struct job *job)
{
    struct job_live *live = job->live;
    job->live = NULL;
    if (!live)
        return;
    if (live->run)
        live->run->x->kind->release(live->run);
    json_decref(live->request);
    json_decref((json_t *)(uintptr_t)live->over.run_json);
    job_ending_free(live->ending);
    series_fini(&live->spark);
    free(live);
}

void job_free(struct job *job)
{
    if (!job)
        return;
    job_unlive(job);
    free(job->name);
    free(job->after);
    free(job);
}

/* ---- slots, memory and GPUs ---- */

void jobs_occupy(struct jobs *j, struct job *job)
{
    struct plan_room *room = &j->room;
    if (job->has_room)
        return;
    room->slots_used++;
    room->memory_used += job->memory_bytes;
    room->gpus_used |= job->live->gpus;
    job->has_room = true;
    j->is_planned = false;
    if (room->slots_used == 1 && j->executor.kind->owns_machine)
        return;
    /* other jobs run or may run at the same time, so none of the running jobs ran alone */
    for (size_t i = 0; i < j->active_count; i++)
        if (j->active[i]->has_room)
            j->active[i]->live->is_alone = false;
    job->live->is_alone = false;
}

void jobs_vacate(struct jobs *j, struct job *job)
{
    struct plan_room *room = &j->room;
    if (!job->has_room)
        return;
    job->has_room = false;
    room->slots_used--;
    room->memory_used -= job->memory_bytes;
    room->gpus_used &= ~job->live->gpus;
    j->is_planned = false;
}
