/* Decides the verdict word and its evidence from the shape of a series and its marks. */
#include "verdict/judging.h"

#include <math.h>
#include <string.h>

#include "verdict/events.h"

void judging_add_evidence(struct verdict_result *r, enum verdict_evidence_code code, double a,
                          double b, double c, double d)
{
    if (r->n_evidence < VERDICT_EVIDENCE)
        r->evidence[r->n_evidence++] =
            (struct verdict_evidence){.code = code, .value = {a, b, c, d}};
}

void judging_conclude(struct judging *j, enum verdict_word word, double confidence)
{
    j->r->word = word;
    j->r->leak = verdict_word_leak(word);
    j->r->confidence = fmin(0.99, fmax(0.01, confidence));
}

double judging_caller_seconds(const struct verdict_series *v, double running_s)
{
    double now = ((double)v->clock.last_ns - (double)v->clock.first_ns) * 1e-9;
    return v->clock.gaps == 0 ? running_s : fmin(now, running_s + v->clock.gap_s);
}

double judging_seconds_at_step(const struct verdict_series *v, double x)
{
    double x0 = v->first_step, t0 = v->first_step_s, x1 = v->last_step, t1 = v->last_step_s;
    for (uint32_t i = 0; i < v->by_step.count; i++) {
        const struct envelope_slot *s = &v->by_step.slot[i];
        if (s->x > x) {
            x1 = s->x;
            t1 = (double)s->t;
            break;
        }
        x0 = s->x;
        t0 = (double)s->t;
    }
    return x1 > x0 ? t0 + (x - x0) * (t1 - t0) / (x1 - x0) : t1;
}

double judging_seconds_per_step(const struct verdict_series *v, double from)
{
    double x = fmax(from, v->first_step);
    if (v->step_only || v->steps_taken < 2 || !(v->last_step > v->first_step))
        return 0;
    /* no step was completed after FROM, so all steps are averaged */
    if (!(v->last_step > x))
        x = v->first_step;
    return fmax(0, (v->last_step_s - judging_seconds_at_step(v, x)) / (v->last_step - x));
}

/* Finds the step or second at which the first epoch ends, if it is known. */
static void find_epoch_end(struct judging *j)
{
    const struct verdict_series *v = j->v;
    j->has_epoch_end = false;
    if (j->w.by_step) {
        if (v->steps_per_epoch) {
            j->has_epoch_end = true;
            j->epoch_end = v->begin_step + (double)v->steps_per_epoch;
        } else if (v->has_first_epoch) {
            j->has_epoch_end = true;
            j->epoch_end = v->first_epoch_step;
        }
        return;
    }
    if (v->has_first_epoch) {
        j->has_epoch_end = true;
        j->epoch_end = v->first_epoch_s;
    }
}

static void judge_stepping(struct judging *j, const struct events_steps *e)
{
    judging_add_evidence(j->r, VERDICT_SAID_EVENT_STEPS, e->kind, e->count, e->jump_bytes,
                         e->share);
    j->r->event = e->kind;
    j->rate_from = j->w.x[0];
    judging_conclude(j, VERDICT_STEPPING, fmin(0.97, 0.6 + 0.08 * e->count));
}

/* Removes start-up from the view. A view by step begins after the start of training: only a jump in
 * the first steps is start-up. Gradual growth over several steps is stored in FILL, as growth that
 * has ended. */
static void trim_startup(struct judging *j)
{
    /* A single move of at least this fraction of the growth is a jump. */
    static const double AT_ONCE = 0.5;
    struct view all = j->w;
    double largest = 0, grown;
    size_t cut;
    view_trim_startup(&j->w);
    cut = all.n - j->w.n;
    if (!j->w.by_step || cut == 0)
        return;
    for (size_t i = 1; i <= cut; i++)
        largest = fmax(largest, all.low[i] - all.low[i - 1]);
    grown = all.low[cut] - all.low[0];
    if (grown < fmax(j->v->options.material_fraction * all.low[0], 4 * j->w.sigma) ||
        largest > AT_ONCE * grown)
        return;
    j->fill = grown;
    j->fill_end = all.x[cut];
}

static void note_input(struct judging *j)
{
    const struct verdict_series *v = j->v;
    if (!v->has_step && !v->has_begin)
        judging_add_evidence(j->r, VERDICT_SAID_NO_MARKS, 0, 0, 0, 0);
    else if (!j->has_epoch_end && !v->steps_per_epoch && !v->has_first_epoch &&
             !(v->examples && v->batch))
        judging_add_evidence(j->r, VERDICT_SAID_NO_EPOCH, 0, 0, 0, 0);
    if (v->clock.gaps)
        judging_add_evidence(j->r, VERDICT_SAID_GAPS, (double)v->clock.gaps, v->clock.gap_s, 0, 0);
    if (v->clock.dropped_back)
        judging_add_evidence(j->r, VERDICT_SAID_BACKWARDS, (double)v->clock.dropped_back, 0, 0, 0);
}

/* Returns true if steps are used as the x axis: there are enough of them, and the last one is
 * recent. */
bool judging_use_steps(const struct verdict_series *v)
{
    double now = ((double)v->clock.last_ns - (double)v->clock.first_ns) * 1e-9 - v->clock.gap_s;
    if (v->step_only)
        return true;
    if (v->by_step.count < POINTS_AT_LEAST)
        return false;
    return now - v->last_step_s <= fmax(60, 0.25 * (now - v->first_step_s));
}

/* Sets the smallest detectable growth rate: the smallest material growth, divided by the length of
 * the window or by the time since growth stopped. */
static void set_detectable(const struct judging *j)
{
    struct verdict_result *r = j->r;
    const struct view *w = &j->w;
    double span = w->x[w->n - 1] - w->x[0];
    if (r->growth_ended.known && w->by_step)
        span = fmin(span, w->now - (double)r->growth_ended.step);
    else if (r->growth_ended.known)
        span = fmin(span, judging_caller_seconds(j->v, w->now) - r->growth_ended.t_s);
    if (r->leak != VERDICT_LEAK_NO || !(span > 0))
        return;
    double rate = j->s.material / span;
    if (w->by_step)
        r->detectable_per_step = rate;
    if (w->seconds_per_x > 0)
        r->detectable_per_min = 60 * rate / w->seconds_per_x;
    judging_add_evidence(r, VERDICT_SAID_DETECTABLE, w->by_step ? rate : 60 * rate, w->by_step, 0,
                         0);
}

void verdict_judge(const struct verdict_series *v, const struct verdict_limit *limit,
                   struct verdict_result *ret)
{
    struct judging j = {.v = v, .limit = limit, .r = ret};
    struct events_steps steps;
    bool by_step = judging_use_steps(v);
    size_t need = v->step_only ? TABLE_POINTS_AT_LEAST : POINTS_AT_LEAST;
    double cap = v->has_step || v->has_begin ? 0.85 : 0.8;
    memset(ret, 0, sizeof *ret);
    ret->samples = v->samples;
    ret->peak_bytes = v->peak_bytes;
    ret->mean_bytes = v->mean_bytes;
    j.history = !by_step && v->has_begin ? v->begin_s : -HUGE_VAL;
    view_build(&j.w, v, by_step, j.history, j.history);
    j.began = j.w.start;
    if (!v->step_only)
        trim_startup(&j);
    find_epoch_end(&j);
    if (j.w.n) {
        ret->has_floor = true;
        ret->floor_first_bytes = j.w.low[0];
        ret->floor_last_bytes = j.w.low[j.w.n - 1];
        for (size_t i = 0; i < j.w.n; i++)
            ret->highest_floor_bytes = fmax(ret->highest_floor_bytes, j.w.y[i]);
    }
    if (j.w.n < need) {
        judging_add_evidence(ret, v->samples ? VERDICT_SAID_FEW : VERDICT_SAID_EMPTY, (double)j.w.n,
                             (double)need, 0, 0);
        judging_conclude(&j, VERDICT_UNDECIDED, 0.5);
        note_input(&j);
        return;
    }
    shape_of(&j.w, v->options.material_fraction, &j.s);
    j.rate_from = j.w.x[0];
    if (by_step && !(j.has_epoch_end && judging_beyond_epoch(&j) < JUDGING_BEYOND) &&
        events_find_steps(v, j.w.sigma, j.s.material, &steps) &&
        j.s.growth >= fmax(j.s.material, 0.5 * steps.total_bytes))
        judge_stepping(&j, &steps);
    else if (j.has_epoch_end && j.w.now < j.epoch_end)
        judge_first_epoch(&j);
    else if (j.has_epoch_end && judge_after_epoch(&j))
        ;
    else if (j.has_epoch_end)
        judge_first_epoch(&j);
    else
        judge_open(&j, cap);
    if (by_step && j.has_epoch_end)
        judge_season(&j);
    if (by_step)
        verdict_name_leak(ret, v);
    outlook_rates(&j);
    outlook_oom(&j);
    outlook_alarm(&j);
    set_detectable(&j);
    note_input(&j);
}
