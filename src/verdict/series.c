/* Adds readings and marks to the fixed-size state of a series. */
#include "verdict/verdict.h"

#include <errno.h>
#include <math.h>
#include <string.h>

enum { CLOCK_SET_BACK_AFTER = 8, EVENT_KINDS = 3, AFTER_READINGS = 4, AFTER_LONGER = 8 };
static const double GAP_TIMES_TYPICAL = 30, GAP_AT_LEAST_S = 120;

static const char *const WORDS[VERDICT_WORDS] = {
    [VERDICT_UNDECIDED] = "undecided", [VERDICT_STABLE] = "stable",
    [VERDICT_SPIKING] = "spiking",     [VERDICT_PLATEAUED] = "plateaued",
    [VERDICT_FILLING] = "filling",     [VERDICT_STEPPING] = "stepping",
    [VERDICT_LEAKING] = "leaking",
};
static const char *const MARKS[VERDICT_MARK_KINDS] = {
    [VERDICT_MARK_BEGIN] = "begin",     [VERDICT_MARK_STEP] = "step",
    [VERDICT_MARK_SUBSTEP] = "substep", [VERDICT_MARK_EVAL] = "eval",
    [VERDICT_MARK_SAVE] = "save",       [VERDICT_MARK_EPOCH] = "epoch",
    [VERDICT_MARK_END] = "end",
};

const char *verdict_word_name(enum verdict_word word)
{
    return (unsigned)word < VERDICT_WORDS ? WORDS[word] : "undecided";
}

enum verdict_leak verdict_word_leak(enum verdict_word word)
{
    switch (word) {
    case VERDICT_LEAKING:
    case VERDICT_STEPPING:
        return VERDICT_LEAK_YES;
    case VERDICT_STABLE:
    case VERDICT_SPIKING:
    case VERDICT_PLATEAUED:
        return VERDICT_LEAK_NO;
    case VERDICT_UNDECIDED:
    case VERDICT_FILLING:
    case VERDICT_WORDS:
        break;
    }
    return VERDICT_LEAK_UNKNOWN;
}

const char *verdict_mark_name(enum verdict_mark_kind kind)
{
    return (unsigned)kind < VERDICT_MARK_KINDS ? MARKS[kind] : "mark";
}

static bool in_range(double x, double low, double high)
{
    return x >= low && x <= high; /* false for NaN */
}

int verdict_init(struct verdict_series *v, const struct verdict_options *options)
{
    struct verdict_options o = {0};
    if (options)
        o = *options;
    if (o.alpha == 0)
        o.alpha = 0.01;
    if (o.warmup_s == 0)
        o.warmup_s = 840;
    if (o.warmup_steps == 0)
        o.warmup_steps = 200;
    if (o.material_fraction == 0)
        o.material_fraction = 0.025;
    if (o.late_rise == 0)
        o.late_rise = 0.2;
    if (!in_range(o.late_rise, 0, 100) || !in_range(o.alpha, 1e-12, 0.5) ||
        !in_range(o.warmup_s, 0, 1e9) || !in_range(o.material_fraction, 0, 1))
        return -EINVAL;
    memset(v, 0, sizeof *v);
    v->options = o;
    v->steps_per_epoch = o.steps_per_epoch;
    return 0;
}

static double running_s(const struct verdict_series *v, int64_t t_ns)
{
    /* The difference is computed in double, because the difference of two int64_t may overflow. */
    return ((double)t_ns - (double)v->clock.first_ns) * 1e-9 - v->clock.gap_s;
}

/* Decides whether a reading at T_NS is accepted, and excludes gaps from the running time. */
static bool clock_accept(struct verdict_series *v, int64_t t_ns)
{
    double dt = ((double)t_ns - (double)v->clock.last_ns) * 1e-9;
    if (v->samples == 0) {
        v->clock.first_ns = v->clock.last_ns = t_ns;
        return true;
    }
    if (dt < 0) {
        v->clock.dropped_back++;
        if (++v->clock.back_run < CLOCK_SET_BACK_AFTER)
            return false;
        /* The clock was set back, so time continues from the last running time. */
        v->clock.gap_s += dt;
        dt = 0;
    }
    v->clock.back_run = 0;
    if (v->samples > 3 && dt > GAP_AT_LEAST_S && dt > GAP_TIMES_TYPICAL * v->clock.typical_dt_s) {
        v->clock.gaps++;
        v->clock.gap_s += dt - v->clock.typical_dt_s;
    } else if (v->samples == 1) {
        v->clock.typical_dt_s = dt;
    } else {
        /* Raise or lower the estimated median of the sampling interval by a tenth, towards DT. */
        v->clock.typical_dt_s *= dt > v->clock.typical_dt_s ? 1.1 : 1 / 1.1;
        if (v->clock.typical_dt_s < 1e-6)
            v->clock.typical_dt_s = 1e-6;
    }
    v->clock.last_ns = t_ns;
    return true;
}

static void count_sample(struct verdict_series *v, double y)
{
    v->samples++;
    if (v->samples == 1) {
        v->min_bytes = v->peak_bytes = v->mean_bytes = y;
    } else {
        v->min_bytes = fmin(v->min_bytes, y);
        v->peak_bytes = fmax(v->peak_bytes, y);
        v->mean_bytes += (y - v->mean_bytes) / (double)v->samples;
    }
    v->last_bytes = y;
}

void verdict_update(struct verdict_series *v, int64_t t_ns, uint64_t bytes)
{
    double y = (double)bytes;
    if (v->has_end || (bytes == 0 && !v->options.zero_is_memory))
        return;
    if (!clock_accept(v, t_ns))
        return;
    count_sample(v, y);
    envelope_push(&v->by_time, running_s(v, t_ns), 0, y);
}

void verdict_job_over(struct verdict_series *v)
{
    v->is_over = true;
}

void verdict_work_ended(struct verdict_series *v, int64_t t_ns)
{
    v->worked_s = fmax(0, ((double)t_ns - (double)v->clock.first_ns) * 1e-9 - v->clock.gap_s);
}

static void event_feed(struct verdict_event *e, float y)
{
    if (e->after_n >= AFTER_LONGER)
        return;
    if (e->after_n == 0)
        e->after_first = y;
    if (e->after_n <= 1)
        e->after_low = e->after_lowest = y;
    if (e->after_n < AFTER_READINGS)
        e->after_low = fminf(e->after_low, y);
    e->after_lowest = fminf(e->after_lowest, y);
    e->after_n++;
}

/* Adds a reading at a step end to the newest event of each mark kind. */
static void events_feed(struct verdict_series *v, double y)
{
    bool is_fed[VERDICT_MARK_KINDS] = {false};
    unsigned left = EVENT_KINDS;
    for (uint32_t i = v->n_events; i-- > 0 && left > 0;) {
        struct verdict_event *e = &v->events[i];
        if (is_fed[e->kind])
            continue;
        is_fed[e->kind] = true;
        left--;
        if (e->after_n == 0 && e->sampled == (uint8_t)v->samples)
            continue; /* the reading is older than the event */
        event_feed(e, (float)y);
    }
}

static void step_take(struct verdict_series *v, double step, double t_s, double y)
{
    if (v->steps_taken == 0) {
        v->first_step = step;
        v->first_step_s = t_s;
    }
    v->steps_taken++;
    envelope_push(&v->by_step, step, t_s, y);
    events_feed(v, y);
    if (v->n_recent == VERDICT_RECENT)
        memmove(v->recent, v->recent + 1, (VERDICT_RECENT - 1) * sizeof v->recent[0]);
    else
        v->n_recent++;
    v->recent[v->n_recent - 1] = y;
}

void verdict_update_step(struct verdict_series *v, uint64_t step, uint64_t bytes)
{
    double x = (double)step, y = (double)bytes;
    if (v->has_end || (bytes == 0 && !v->options.zero_is_memory))
        return;
    if (v->samples && x < v->last_step) {
        v->clock.dropped_back++;
        return;
    }
    v->step_only = true;
    v->has_step = true;
    v->last_step = x;
    count_sample(v, y);
    step_take(v, x, 0, y);
}

/* Drops every second event of each kind when the table is full. */
static void events_thin(struct verdict_series *v)
{
    uint32_t kept = 0, seen[VERDICT_MARK_KINDS] = {0};
    for (uint32_t i = 0; i < v->n_events; i++)
        if (seen[v->events[i].kind]++ % 2 == 0)
            v->events[kept++] = v->events[i];
    v->n_events = kept < VERDICT_EVENTS ? kept : VERDICT_EVENTS - 1;
}

static void event_add(struct verdict_series *v, enum verdict_mark_kind kind, double t_s,
                      double step)
{
    struct verdict_event *e;
    double before = HUGE_VAL;
    if (v->n_events == VERDICT_EVENTS)
        events_thin(v);
    e = &v->events[v->n_events++];
    for (uint32_t i = 0; i < v->n_recent; i++)
        before = fmin(before, v->recent[i]);
    *e = (struct verdict_event){.t_s = (float)t_s,
                                .step = step,
                                .reading = v->steps_taken,
                                .kind = (uint8_t)kind,
                                .sampled = (uint8_t)v->samples,
                                .has_before = v->n_recent > 0};
    if (e->has_before) {
        e->before_low = (float)before;
        e->before_last = (float)v->recent[v->n_recent - 1];
    }
}

static void mark_step(struct verdict_series *v, double t_s, const struct verdict_mark *m)
{
    double step = m->has_step ? (double)m->step : v->last_step + 1;
    if (v->has_step && step < v->last_step)
        return; /* the mark is a late datagram or comes from another rank */
    v->has_step = true;
    v->last_step = step;
    v->last_step_s = t_s;
    /* Without a sample since the previous step end, there is no reading for this step. */
    if (v->samples == 0 || (double)v->samples == v->step_sampled)
        return;
    v->step_sampled = (double)v->samples;
    step_take(v, step, t_s, v->last_bytes);
}

static void mark_begin(struct verdict_series *v, double t_s, const struct verdict_mark *m)
{
    if (v->has_begin)
        return;
    v->has_begin = true;
    v->begin_s = t_s;
    v->begin_step = m->has_step ? (double)m->step : 0;
    v->mean_bytes = v->last_bytes;
}

static void mark_epoch(struct verdict_series *v, double t_s, double step)
{
    event_add(v, VERDICT_MARK_EPOCH, t_s, step);
    if (v->has_first_epoch)
        return;
    v->has_first_epoch = true;
    v->first_epoch_step = step;
    v->first_epoch_s = t_s;
    if (v->has_step && v->steps_per_epoch == 0 && step > v->begin_step)
        v->steps_per_epoch = (uint64_t)fmin(step - v->begin_step, 9e18);
}

void verdict_mark(struct verdict_series *v, int64_t t_ns, const struct verdict_mark *m)
{
    double t_s = v->samples && !v->step_only ? running_s(v, t_ns) : 0;
    double step = m->has_step && m->kind != VERDICT_MARK_END ? (double)m->step : v->last_step;
    if (v->has_end || (unsigned)m->kind >= VERDICT_MARK_KINDS)
        return;
    if (v->samples && !v->step_only && t_ns < v->clock.last_ns)
        t_s = running_s(v, v->clock.last_ns);
    if (m->steps_per_epoch)
        v->steps_per_epoch = m->steps_per_epoch;
    if (m->examples)
        v->examples = m->examples;
    if (m->batch)
        v->batch = m->batch;
    if (m->max_steps)
        v->max_steps = m->max_steps;
    if (v->steps_per_epoch == 0 && v->examples && v->batch)
        v->steps_per_epoch = v->examples / v->batch + (v->examples % v->batch != 0);
    v->events_seen[m->kind]++;
    switch (m->kind) {
    case VERDICT_MARK_BEGIN:
        mark_begin(v, t_s, m);
        break;
    case VERDICT_MARK_STEP:
        if (!v->step_only)
            mark_step(v, t_s, m);
        break;
    case VERDICT_MARK_EVAL:
    case VERDICT_MARK_SAVE:
        event_add(v, m->kind, t_s, step);
        break;
    case VERDICT_MARK_EPOCH:
        mark_epoch(v, t_s, step);
        break;
    case VERDICT_MARK_END:
        v->has_end = true;
        break;
    case VERDICT_MARK_SUBSTEP:
    case VERDICT_MARK_KINDS:
        break;
    }
}
