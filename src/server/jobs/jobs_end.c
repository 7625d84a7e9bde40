/* How a job ended: from its run.json, which the job itself could have written, to what is kept. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "server/jobs/jobs_private.h"

enum {
    TEXT_MAX = 500,
    /* more than this, or two per cent of what it took, and the machine did not get it all back */
    SLACK_BYTES = 20 << 20,
    SLACK_PARTS = 50,
};

static const double year_s = 366.0 * 24 * 3600;

/* ---- foreign documents ---- */

json_t *pick_number(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    return json_is_number(v) && isfinite(json_number_value(v)) ? json_incref(v) : json_null();
}

json_t *pick_text(const json_t *o, const char *key, size_t max)
{
    const json_t *v = json_object_get(o, key);
    size_t len = json_string_length(v);
    if (!json_is_string(v))
        return json_null();
    const char *text = json_string_value(v);
    if (len > max) /* not within a character */
        for (len = max; len > 0 && ((unsigned char)text[len] & 0xc0) == 0x80;)
            len--;
    return json_text(text, len);
}

bool pick_bytes(const json_t *o, const char *key, uint64_t *ret)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return false;
    *ret = (uint64_t)json_integer_value(v);
    return true;
}

json_t *pick_progress(const json_t *o)
{
    static const char *const keys[] = {"step", "max_steps", "epoch", "steps_per_s", "eta_s"};
    if (!json_is_object(o))
        return json_null();
    json_t *picked = json_object();
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        json_object_set_new(picked, keys[i], pick_number(o, keys[i]));
    return picked;
}

static json_t *pick_range(const json_t *o)
{
    if (!json_is_object(o))
        return json_null();
    return json_pack("{s:o,s:o}", "low", pick_number(o, "low"), "high", pick_number(o, "high"));
}

/* A number, or the middle of an interval as verdicts have them. */
static json_t *pick_rate(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_object(v) ? pick_number(v, "value") : pick_number(o, key);
}

static json_t *pick_boolean(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    return json_is_boolean(v) ? json_incref(v) : json_null();
}

static json_t *pack_verdict(const json_t *o, const json_t *eta, json_t *sentence)
{
    json_t *word = pick_text(o, "verdict", 32);
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "verdict", word, "leak",
                     pick_boolean(o, "leak"), "confidence", pick_number(o, "confidence"),
                     "rate_bytes_per_min", pick_rate(o, "rate_bytes_per_min"),
                     "rate_bytes_per_step", pick_rate(o, "rate_bytes_per_step"), "oom_eta_s",
                     pick_range(eta), "sentence", sentence);
}

json_t *pick_verdict(const json_t *o)
{
    if (!json_is_string(json_object_get(o, "verdict")))
        return json_null();
    return pack_verdict(o, json_object_get(o, "oom_eta_s"), pick_text(o, "sentence", TEXT_MAX));
}

/* As run.json has it. */
static json_t *ended_verdict(const json_t *run)
{
    const json_t *tree = json_object_get(json_object_get(run, "verdict"), "tree");
    const json_t *first = json_array_get(json_object_get(tree, "evidence"), 0);
    json_t *holder = json_pack("{s:O?}", "text", first);
    if (!json_is_string(json_object_get(tree, "verdict"))) {
        json_decref(holder);
        return json_null();
    }
    json_t *verdict = pack_verdict(tree, json_object_get(json_object_get(tree, "oom"), "eta_s"),
                                   pick_text(holder, "text", TEXT_MAX));
    json_decref(holder);
    return verdict;
}

/* ---- memory ---- */

static void raise(struct job_figures *f, enum job_figure which, const json_t *o, const char *key)
{
    uint64_t bytes;
    if (!pick_bytes(o, key, &bytes) || (f->has & 1u << which && f->bytes[which] >= bytes))
        return;
    f->bytes[which] = bytes;
    f->has |= 1u << which;
}

static void replace(struct job_figures *f, enum job_figure which, const json_t *o, const char *key)
{
    uint64_t bytes;
    if (!pick_bytes(o, key, &bytes))
        return;
    f->bytes[which] = bytes;
    f->has |= 1u << which;
}

static struct job_figures ended_figures(const struct job_live *live, const json_t *run)
{
    struct job_figures f = live->figures;
    const json_t *tree = json_object_get(run, "tree");
    const json_t *limit = json_object_get(run, "limit");
    const json_t *gpus = json_object_get(run, "gpus");
    raise(&f, FIGURE_PEAK, tree, "peak_bytes");
    replace(&f, FIGURE_JOB, tree, "end_bytes");
    replace(&f, FIGURE_UNIQUE, tree, "unique_bytes");
    replace(&f, FIGURE_LIMIT, limit, "limit_bytes");
    replace(&f, FIGURE_HEADROOM, limit, "headroom_bytes");
    for (size_t i = 0; i < json_array_size(gpus) && i < PLAN_GPUS_MAX; i++)
        raise(&f, FIGURE_GPU, json_array_get(gpus, i), "job_peak_bytes");
    return f;
}

json_t *job_figures_json(const struct job_figures *f)
{
    static const char *const names[FIGURES] = {"job_bytes",   "peak_bytes",     "unique_bytes",
                                               "limit_bytes", "headroom_bytes", "gpu_bytes"};
    if (!(f->has & ~(1u << FIGURE_LIMIT)))
        return json_null();
    json_t *o = json_object();
    for (size_t i = 0; i < FIGURES; i++)
        json_object_set_new(o, names[i], f->has & 1u << i ? json_u64(f->bytes[i]) : json_null());
    return o;
}

/* ---- what the machine got back ---- */

/* True: all of it, as far as it is known. */
static bool is_back(const json_t *figure)
{
    uint64_t before, peak, after;
    if (!pick_bytes(figure, "before_bytes", &before) || !pick_bytes(figure, "peak_bytes", &peak) ||
        !pick_bytes(figure, "after_bytes", &after))
        return true;
    uint64_t taken = peak > before ? peak - before : 0;
    uint64_t slack = taken / SLACK_PARTS > SLACK_BYTES ? taken / SLACK_PARTS : SLACK_BYTES;
    return after <= before || after - before <= slack;
}

/* Shared memory that is known to be the job's, and stayed. */
static bool has_left_shm(const json_t *run)
{
    const json_t *files = json_object_get(json_object_get(run, "left"), "shm");
    uint64_t sum = 0, bytes;
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *file = json_array_get(files, i);
        /* earlier versions also listed files of others */
        if (!json_is_false(json_object_get(file, "is_jobs")) &&
            !json_is_true(json_object_get(file, "removed")) && pick_bytes(file, "bytes", &bytes))
            sum += bytes < (UINT64_C(1) << 60) ? bytes : 0;
    }
    return sum > SLACK_BYTES;
}

static json_t *given_back(const struct job_live *live, const json_t *run, bool *ret_clean)
{
    const json_t *back = json_object_get(run, "given_back");
    const json_t *gpus = json_object_get(back, "gpus");
    const json_t *host = json_object_get(back, "host"), *shm = json_object_get(back, "shm");
    uint64_t sum = 0, bytes;
    bool has_gpu = false, is_clean = !has_left_shm(run);
    if (!json_is_object(back))
        return json_null();
    for (size_t i = 0; i < json_array_size(gpus) && i < PLAN_GPUS_MAX; i++) {
        const json_t *gpu = json_array_get(gpus, i);
        if (live->gpus >> i & 1 || live->is_alone)
            is_clean = is_clean && is_back(gpu);
        if (!pick_bytes(gpu, "freed_bytes", &bytes))
            continue;
        has_gpu = true;
        sum += bytes < (UINT64_C(1) << 60) ? bytes : 0;
    }
    /* the whole machine's memory tells of one job only while no other runs */
    if (live->is_alone)
        is_clean = is_clean && is_back(host) && is_back(shm);
    *ret_clean = is_clean;
    return json_pack("{s:o,s:o,s:o,s:b}", "host_bytes", pick_number(host, "freed_bytes"),
                     "shm_bytes", pick_number(shm, "freed_bytes"), "gpu_bytes",
                     has_gpu ? json_u64(sum) : json_null(), "clean", (int)is_clean);
}

/* ---- the state ---- */

static void say(struct job_ending *e, enum job_state state, const char *reason)
{
    e->state = state;
    snprintf(e->reason, sizeof e->reason, "%s", reason ? reason : "");
}

static void judge(struct job_ending *e, const struct job_live *live, const json_t *end,
                  const char *no_start)
{
    const char *kind = json_string_value(json_object_get(end, "kind"));
    const char *cause_kind = json_string_value(json_object_get(end, "cause_kind"));
    const json_t *status = json_object_get(end, "status");
    char cause[TEXT_MAX + 8] = "";
    json_t *text = pick_text(end, "cause", TEXT_MAX);
    if (json_is_string(text))
        snprintf(cause, sizeof cause, "%s", json_string_value(text));
    json_decref(text);
    if (live->was_asked)
        say(e, JOB_CANCELLED, live->reason);
    else if (no_start)
        say(e, JOB_FAILED, no_start);
    else if (!end)
        say(e, JOB_LOST, "nothing of it is left, and its run.json does not say how it ended");
    else if (kind && strcmp(kind, "lost") == 0)
        say(e, JOB_LOST, "its supervisor was killed");
    else if (cause_kind && strcmp(cause_kind, "cancelled") == 0)
        say(e, JOB_CANCELLED, cause);
    else if (json_is_integer(status) && json_integer_value(status) == 0)
        say(e, JOB_SUCCEEDED, NULL);
    else if (cause[0])
        say(e, JOB_FAILED, cause);
    else
        say(e, JOB_FAILED, "it failed, and its run.json does not say why");
}

/* ---- counters ---- */

static void count(struct job_ending *e, const char *key, double by)
{
    if (e->count_count == ENDING_COUNTS)
        return;
    e->counts[e->count_count].key = key;
    e->counts[e->count_count++].by = by;
}

/* Foreign words do not become names of counters. */
static const char *known_key(const char *const (*table)[2], size_t n, const char *word,
                             const char *other)
{
    for (size_t i = 0; word && i < n; i++)
        if (strcmp(table[i][0], word) == 0)
            return table[i][1];
    return other;
}

static const char *const cause_keys[][2] = {
    {"exit status", "failed.exit status"},
    {"exception", "failed.exception"},
    {"GPU memory", "failed.GPU memory"},
    {"allocation failed", "failed.allocation failed"},
    {"shared memory full", "failed.shared memory full"},
    {"signal", "failed.signal"},
    {"operator", "failed.operator"},
    {"guard", "failed.guard"},
    {"cgroup out of memory", "failed.cgroup out of memory"},
    {"host out of memory", "failed.host out of memory"},
    {"not started", "failed.not started"},
};

static const char *const verdict_keys[][2] = {
    {"stable", "verdict.stable"},       {"spiking", "verdict.spiking"},
    {"plateaued", "verdict.plateaued"}, {"filling", "verdict.filling"},
    {"stepping", "verdict.stepping"},   {"leaking", "verdict.leaking"},
    {"undecided", "verdict.undecided"},
};

static void count_all(struct job_ending *e, const struct job_live *live, bool is_clean)
{
    const char *cause = json_string_value(json_object_get(e->end, "cause_kind"));
    const json_t *verdict = json_object_get(e->end, "verdict");
    const json_t *back = json_object_get(e->end, "given_back");
    uint64_t bytes;
    if (e->state == JOB_FAILED)
        count(e,
              known_key(cause_keys, sizeof cause_keys / sizeof *cause_keys, cause, "failed.other"),
              1);
    if (json_is_object(verdict))
        count(e,
              known_key(verdict_keys, sizeof verdict_keys / sizeof *verdict_keys,
                        json_string_value(json_object_get(verdict, "verdict")),
                        "verdict.undecided"),
              1);
    if (json_is_object(back)) {
        count(e, is_clean ? "returns.clean" : "returns.unclean", 1);
        if (pick_bytes(back, "host_bytes", &bytes))
            count(e, "returned.host_bytes", (double)bytes);
        if (pick_bytes(back, "gpu_bytes", &bytes))
            count(e, "returned.gpu_bytes", (double)bytes);
    }
    if (live->start_took_ns) {
        count(e, "starts", 1);
        count(e, "start_seconds", (double)live->start_took_ns / 1e9);
    }
}

/* What watching took, beside the time that was watched. */
static void count_cost(struct job_ending *e, const json_t *cost)
{
    double cpu_s = json_number_value(json_object_get(cost, "cpu_s"));
    if (!e->duration_ns || !(cpu_s > 0) || cpu_s > (double)e->duration_ns / 1e9)
        return;
    count(e, "overhead.cpu_seconds", cpu_s);
    count(e, "overhead.job_seconds", (double)e->duration_ns / 1e9);
}

/* ---- all of it ---- */

static uint64_t peak_to_ask(const json_t *run, const struct job_figures *f)
{
    uint64_t bytes;
    if (pick_bytes(run, "ask_bytes", &bytes))
        return bytes;
    return f->has & 1u << FIGURE_PEAK ? f->bytes[FIGURE_PEAK] : 0;
}

static json_t *keep_or(json_t *first, const json_t *second)
{
    if (!json_is_null(first) || !second)
        return first;
    json_decref(first);
    return json_incref((json_t *)(uintptr_t)second);
}

/* Its last step is known better at the end than from the last message. */
static json_t *ended_progress(const struct job_live *live, const json_t *run)
{
    const json_t *step = json_object_get(json_object_get(run, "marks"), "last_step");
    json_t *progress = live->progress ? json_copy(live->progress) : NULL;
    if (!progress)
        return json_null();
    if (json_is_integer(step) && json_integer_value(step) >= 0)
        json_object_set_new(progress, "step", json_integer(json_integer_value(step)));
    json_object_set_new(progress, "eta_s", json_null());
    return progress;
}

/* Of one that ended unseen run.json alone has it. */
static json_t *ended_spark(const struct job_live *live, const json_t *run)
{
    struct spark spark = live->spark;
    spark_unpack(json_object_get(run, "spark"), &spark);
    return spark_json(&spark);
}

static json_t *end_json(const struct job_live *live, const json_t *run, const char *no_start,
                        bool *ret_clean)
{
    const json_t *end = json_object_get(run, "end");
    const struct job_figures figures = ended_figures(live, run);
    json_t *cause = no_start ? json_text0(no_start) : pick_text(end, "cause", TEXT_MAX);
    json_t *kind = no_start ? json_string("not started") : pick_text(end, "cause_kind", 64);
    return json_pack(
        "{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "status", pick_number(end, "status"),
        "cause", cause, "cause_kind", kind, "pid", pick_number(run, "pid"), "segment",
        pick_number(run, "segment"), "memory", job_figures_json(&figures), "verdict",
        keep_or(ended_verdict(run), live->verdict), "progress", ended_progress(live, run), "spark",
        ended_spark(live, run), "given_back", given_back(live, run, ret_clean), "log_bytes",
        pick_number(json_object_get(run, "log"), "bytes"));
}

struct job_ending *job_ending_new(const struct job_live *live, const json_t *run_json,
                                  const char *no_start)
{
    struct job_ending *e = calloc(1, sizeof *e);
    bool is_clean = false;
    if (!e)
        return NULL;
    e->end = end_json(live, run_json, no_start, &is_clean);
    if (!e->end) {
        free(e);
        return NULL;
    }
    const struct job_figures figures = ended_figures(live, run_json);
    double duration_s = json_number_value(json_object_get(run_json, "duration_s"));
    judge(e, live, json_object_get(run_json, "end"), no_start);
    e->peak_bytes = no_start ? 0 : peak_to_ask(run_json, &figures);
    if (duration_s > 0 && duration_s < 100 * year_s)
        e->duration_ns = (uint64_t)(duration_s * 1e9);
    count_all(e, live, is_clean);
    count_cost(e, json_object_get(run_json, "cost"));
    return e;
}

void job_ending_free(struct job_ending *e)
{
    if (!e)
        return;
    json_decref(e->end);
    free(e);
}
