/* What a supervisor tells of its job, checked, kept and passed on. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/loop.h"
#include "server/jobs/jobs_private.h"

static const double year_s = 366.0 * 24 * 3600;

/* ---- started, and asked to end ---- */

static void on_started(void *user, int64_t id)
{
    struct jobs *j = user;
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
    bool is_first = !job->live->was_asked;
    job->live->was_asked = true;
    if (is_first)
        jobs_change(j, job, JOB_STOPPING, reason);
    if (job->live->run) /* where it cannot be reached now, the executor sees to it */
        executor_cancel(job->live->run, job->live->reason, grace_ns);
}

/* ---- messages ---- */

static void keep(json_t **at, json_t *value)
{
    json_decref(*at);
    *at = value;
}

static void set_figure(struct job_figures *f, enum job_figure which, const json_t *o,
                       const char *key)
{
    uint64_t bytes;
    if (!pick_bytes(o, key, &bytes))
        return;
    f->bytes[which] = bytes;
    f->has |= 1u << which;
}

static void raise_peak(struct job_figures *f, uint64_t bytes)
{
    if (f->has & 1u << FIGURE_PEAK && f->bytes[FIGURE_PEAK] >= bytes)
        return;
    f->bytes[FIGURE_PEAK] = bytes;
    f->has |= 1u << FIGURE_PEAK;
}

static bool is_same_word(const json_t *a, const json_t *b)
{
    const char *x = json_string_value(json_object_get(a, "verdict"));
    const char *y = json_string_value(json_object_get(b, "verdict"));
    return x && y ? strcmp(x, y) == 0 : !x && !y;
}

static void take_verdict(struct jobs *j, struct job *job, const json_t *verdict)
{
    json_t *picked = pick_verdict(verdict);
    if (json_is_null(picked)) { /* none yet is no change */
        json_decref(picked);
        return;
    }
    bool is_change = !is_same_word(job->live->verdict, picked);
    keep(&job->live->verdict, picked);
    job->live->is_news = true;
    if (is_change)
        jobs_tell_verdict(j, job);
}

static bool parse_live_state(const json_t *message, enum job_state *ret)
{
    const char *word = json_string_value(json_object_get(message, "state"));
    enum job_state state;
    if (!word || job_state_parse(word, &state) < 0 ||
        (state != JOB_RUNNING && state != JOB_CHECKPOINTING && state != JOB_STOPPING))
        return false;
    *ret = state;
    return true;
}

static void take_state(struct jobs *j, struct job *job, const json_t *message)
{
    enum job_state state;
    char reason[JOBS_SENTENCE_MAX] = "";
    json_t *text = pick_text(message, "reason", sizeof reason - 1);
    if (json_is_string(text))
        snprintf(reason, sizeof reason, "%s", json_string_value(text));
    json_decref(text);
    if (!parse_live_state(message, &state) || job->state == JOB_STARTING)
        return;
    /* it may not have heard yet that it is to end */
    if (job->live->was_asked || (state == job->state && strcmp(reason, job->live->reason) == 0))
        return;
    jobs_change_soft(j, job, state, reason[0] ? reason : NULL);
}

static void on_state(struct jobs *j, struct job *job, const json_t *message)
{
    struct job_live *live = job->live;
    uint64_t bytes;
    const json_t *pid = json_object_get(message, "pid");
    const json_t *segment = json_object_get(message, "segment");
    double started_s = json_number_value(json_object_get(message, "started_s"));
    if (json_is_integer(pid) && json_integer_value(pid) > 0)
        live->pid = json_integer_value(pid);
    if (json_is_integer(segment) && json_integer_value(segment) >= 0)
        live->segment = json_integer_value(segment);
    if (!live->started_ns && started_s > 0 && started_s < 200 * year_s)
        live->started_ns = (uint64_t)(started_s * 1e9);
    keep(&live->progress, pick_progress(json_object_get(message, "progress")));
    set_figure(&live->figures, FIGURE_LIMIT, message, "limit_bytes");
    if (pick_bytes(message, "peak_bytes", &bytes))
        raise_peak(&live->figures, bytes);
    if (pick_bytes(message, "log_bytes", &bytes))
        live->log_bytes = bytes;
    live->is_news = true;
    take_verdict(j, job, json_object_get(message, "verdict"));
    take_state(j, job, message);
}

static void sum_gpus(struct job_figures *f, const json_t *gpus)
{
    uint64_t sum = 0, bytes;
    bool is_known = false;
    for (size_t i = 0; i < json_array_size(gpus) && i < PLAN_GPUS_MAX; i++) {
        if (!pick_bytes(json_array_get(gpus, i), "job_bytes", &bytes))
            continue;
        is_known = true;
        sum += bytes;
    }
    if (!is_known)
        return;
    f->bytes[FIGURE_GPU] = sum;
    f->has |= 1u << FIGURE_GPU;
}

static void on_sample(struct jobs *j, struct job *job, const json_t *message)
{
    struct job_live *live = job->live;
    struct job_figures *f = &live->figures;
    double t_s = json_number_value(json_object_get(message, "t_s"));
    uint64_t bytes;
    (void)j;
    set_figure(f, FIGURE_JOB, message, "job_bytes");
    set_figure(f, FIGURE_UNIQUE, message, "unique_bytes");
    set_figure(f, FIGURE_LIMIT, message, "limit_bytes");
    set_figure(f, FIGURE_HEADROOM, message, "headroom_bytes");
    sum_gpus(f, json_object_get(message, "gpus"));
    live->is_news = true;
    if (!pick_bytes(message, "job_bytes", &bytes))
        return;
    raise_peak(f, bytes);
    if (t_s >= 0 && t_s < 100 * year_s)
        spark_add(&live->spark, (uint64_t)(t_s * 1e9), bytes);
}

/* All of it, from one who was there all the time. */
static void on_spark(struct jobs *j, struct job *job, const json_t *message)
{
    (void)j;
    if (spark_unpack(message, &job->live->spark))
        job->live->is_news = true;
}

static void on_verdict(struct jobs *j, struct job *job, const json_t *message)
{
    take_verdict(j, job, json_object_get(message, "verdict"));
}

static void on_log(struct jobs *j, struct job *job, const json_t *message)
{
    uint64_t bytes;
    (void)j;
    if (pick_bytes(message, "bytes", &bytes))
        job->live->log_bytes = bytes;
}

/* Whoever asked may wait for it; the others see an event. */
static void on_answer(struct jobs *j, struct job *job, const json_t *message)
{
    const char *what = json_string_value(json_object_get(message, "do"));
    if (!what || strcmp(what, "checkpoint") != 0)
        return;
    keep(&job->live->checkpoint,
         json_pack("{s:b,s:o}", "ok", json_is_true(json_object_get(message, "ok")), "error",
                   pick_text(message, "error", 400)));
    jobs_tell_answer(j, job->id, job->live->checkpoint);
    if (json_is_true(json_object_get(message, "ok")))
        return;
    json_t *event = json_pack("{s:s,s:I,s:s,s:o}", "type", "event", "id", (json_int_t)job->id,
                              "act", "checkpoint failed", "why", pick_text(message, "error", 400));
    if (event)
        jobs_tell_live(j, job->id, event);
    json_decref(event);
}

static const struct {
    const char *type;
    void (*take)(struct jobs *j, struct job *job, const json_t *message);
    bool is_passed_on;
} kinds[] = {
    {"sample", on_sample, true},  {"mark", NULL, true},       {"verdict", on_verdict, true},
    {"event", NULL, true},        {"log", on_log, true},      {"state", on_state, false},
    {"answer", on_answer, false}, {"spark", on_spark, false},
};

static void on_news(void *user, int64_t id, json_t *message)
{
    struct jobs *j = user;
    struct job *job = jobs_find(j, id);
    const char *type = json_string_value(json_object_get(message, "type"));
    if (!job || !job->live || job->live->ending || !type)
        return;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(type, kinds[i].type) != 0)
            continue;
        if (kinds[i].take)
            kinds[i].take(j, job, message);
        if (kinds[i].is_passed_on && json_object_set_new(message, "id", json_integer(id)) == 0)
            jobs_tell_live(j, id, message);
        jobs_tick_on(j);
        return;
    }
}

/* ---- over ---- */

/* A disk without room keeps every job from its folder: that is no fault of theirs. */
static bool is_disk_full(const struct jobs *j)
{
    struct statvfs fs;
    return fstatvfs(j->runs_fd, &fs) == 0 &&
           (fs.f_bavail == 0 || (fs.f_files > 0 && fs.f_favail == 0));
}

static void on_over(void *user, int64_t id, const json_t *run_json, const char *no_start)
{
    struct jobs *j = user;
    struct job *job = jobs_find(j, id);
    if (!job || !job->live)
        return;
    job->live->run = NULL;
    j->ended++;
    if (no_start && !job->live->was_asked && !job_has_folder(j, job) && is_disk_full(j)) {
        jobs_requeue(j, job, no_start);
        return;
    }
    struct job_ending *ending = job_ending_new(job->live, run_json, no_start);
    if (ending)
        jobs_end(j, job, ending);
}

const struct executor_callbacks jobs_callbacks = {
    .started = on_started, .news = on_news, .over = on_over};
