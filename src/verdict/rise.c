/* Judges growth of the baseline while no epoch end is known. */
#include "verdict/judging.h"

#include <math.h>

static const double T_AT_LEAST = 6; /* smallest t statistic of a significant slope */
/* Smallest significant growth, in standard deviations of the block minima. */
static const double SPREADS_AT_LEAST = 4;
/* Shortest duration, in seconds, of a fast rise after a level stretch. */
static const double FAST_AT_LEAST_S = 40;
/* Shortest duration of a fast rise, as a fraction of the time before the rise. A slow rise must
 * last longer (SLOW_PART). */
static const double FAST_PART = 0.08;
/* Shortest level stretch before a fast rise, in seconds. */
static const double SETTLED_AT_LEAST_S = 15;
/* Shortest level stretch before a fast rise, as a fraction of the time so far. */
static const double SETTLED_PART = 0.2;
/* A fast rise must be this many times as large as the largest release so far. */
static const double FAST_OVER_FALL = 1.5;
/* Largest roughness of a fast rise. A rougher rise, shaped like an S or a bow, is a warm-up. */
static const double FAST_ROUGHNESS = 0.04;
/* A slow rise after a level stretch must last this fraction of the whole time before the rise. */
static const double SLOW_PART = 0.5;
/* The slope of the last sixth of a rise must be at least this fraction of its mean slope. */
static const double FRESH_AT_LEAST = 0.33;

static double confidence_of(const struct shape *s, double cap)
{
    double c = 1 - 2 * exp(-fmin(s->t_stat, 20) / 2.5) - 0.1 * exp(-s->n_eff / 10);
    return fmin(cap, fmax(0.5, c));
}

void judge_leaking(struct judging *j, double cap)
{
    const struct shape *s = &j->s;
    judging_add_evidence(j->r, VERDICT_SAID_GROWS, s->span, j->w.by_step, s->rise, 0);
    j->rate_from = s->onset;
    if (s->before == BEFORE_NOTHING && s->sep.bic_power + 6 < s->sep.bic_line)
        j->rate_from += 0.6 * s->span; /* growth bends, so only the recent rate is used */
    j->r->onset_s = j->w.by_step ? 0 : judging_caller_seconds(j->v, s->onset);
    judging_conclude(j, VERDICT_LEAKING, confidence_of(s, cap));
}

bool judge_is_rise(const struct judging *j)
{
    const struct shape *s = &j->s;
    return s->rising && s->straight && s->t_stat >= T_AT_LEAST &&
           s->rise >= fmax(s->material, SPREADS_AT_LEAST * s->spread) &&
           s->above_past >= 0.5 * s->rise &&
           (s->rises >= 6 || (s->rises >= 4 && s->roughness < 0.09)) &&
           (s->chunky ? s->net >= 0.75 : s->fresh >= FRESH_AT_LEAST);
}

/* Returns true if the baseline was level for LENGTH before the onset. The shape cannot be used
 * for this: it was computed without the largest jumps, and start-up without its jumps can look
 * level. */
static bool was_level(const struct judging *j, double length)
{
    const struct view *w = &j->w;
    size_t to = j->s.from > 0 ? j->s.from - 1 : 0,
           from = to; /* memory has already grown within the slot of the onset */
    while (from > 0 && w->x[from - 1] >= w->x[to] - length)
        from--;
    return w->low[to] - w->low[from] <= fmax(3 * w->sigma, 0.01 * w->low[to]);
}

/* Returns the x at which a rise after a level stretch will be judged, or 0 if it can be judged now.
 * A rise that is fast and large compared with the baseline is judged early; a slow rise must last
 * half as long as the time before it. */
double judge_late_wait(const struct judging *j, double warmup_x)
{
    const struct shape *s = &j->s;
    double before = s->onset - j->began, sec = j->w.seconds_per_x > 0 ? j->w.seconds_per_x : 0;
    double floor = j->w.low[s->from > 0 ? s->from - 1 : 0];
    double fast_after = fmax(j->v->options.late_rise * floor / s->slope, FAST_PART * before);
    double slow_after = fmax(SLOW_PART * before, 0.5 * warmup_x), settled;
    if (sec > 0)
        fast_after = fmax(fast_after, FAST_AT_LEAST_S / sec);
    settled = fmax(0.3 * j->v->options.late_rise * floor / s->slope, SETTLED_PART * before);
    if (sec > 0)
        settled = fmax(settled, SETTLED_AT_LEAST_S / sec);
    if (s->before == BEFORE_FLAT && s->flat_before >= settled && s->flat_slots >= 4 &&
        was_level(j, settled) && s->roughness < FAST_ROUGHNESS &&
        s->rise > FAST_OVER_FALL * j->w.largest_fall && fast_after < slow_after)
        slow_after = fast_after;
    return s->span >= slow_after ? 0 : s->onset + slow_after;
}

/* The judgement of growth without a known epoch end: whether the growth may end, whether it is a
 * leak and, if this is undecided, the x at which it will be decided. */
struct open_rise {
    bool ends, leak;
    double wait;
};

static struct open_rise open_rise_of(const struct judging *j, double elapsed, double warmup_x)
{
    const struct shape *s = &j->s;
    struct open_rise r = {.ends = s->before == BEFORE_FLAT ? s->part_may_end : s->may_end};
    switch (s->before) {
    case BEFORE_NOTHING:
        r.leak = !r.ends && elapsed >= warmup_x;
        r.wait = j->began + warmup_x;
        break;
    case BEFORE_STEEPER:
        r.leak = !r.ends && elapsed >= warmup_x && s->span >= 0.4 * elapsed && s->line_remains &&
                 !s->part_may_end;
        r.wait = j->began + warmup_x;
        break;
    case BEFORE_FLAT:
    case BEFORE_GENTLER:
        r.wait = judge_late_wait(j, warmup_x);
        r.leak = !r.ends && r.wait == 0;
        break;
    }
    return r;
}

static void add_reason_open(struct judging *j, const struct open_rise *r, double elapsed,
                            double warmup_x)
{
    const struct shape *s = &j->s;
    const struct view *w = &j->w;
    if (r->ends)
        judging_add_evidence(j->r, VERDICT_SAID_SATURATING, 0, 0, 0, 0);
    else if (s->before == BEFORE_FLAT || s->before == BEFORE_GENTLER)
        judging_add_evidence(j->r, VERDICT_SAID_LATE, s->onset, s->span,
                             s->rise / fmax(1, s->floor_first), w->by_step);
    else if (r->wait > w->now)
        judging_add_evidence(j->r, VERDICT_SAID_EARLY, elapsed, warmup_x, w->by_step, 0);
}

/* Leaves the verdict open, as filling or undecided. WAIT is the x at which an undecided verdict
 * will be decided. */
static void leave_open(struct judging *j, double cap, double elapsed, double wait)
{
    const struct shape *s = &j->s;
    const struct view *w = &j->w;
    if (s->slope_ratio < 0.7)
        judging_add_evidence(j->r, VERDICT_SAID_SLOWING, s->slope_ratio, 0, 0, 0);
    judging_add_evidence(j->r, VERDICT_SAID_GROWS, elapsed, w->by_step, s->growth, 0);
    j->rate_from = s->straight ? s->onset : w->x[w->n - 1] - (w->x[w->n - 1] - w->x[0]) / 2;
    if (w->by_step && !j->v->step_only && (s->before == BEFORE_NOTHING || !s->straight)) {
        judging_add_evidence(j->r, VERDICT_SAID_EPOCH_UNKNOWN, w->now, s->slope, 0, 0);
        judging_conclude(j, VERDICT_FILLING, fmin(cap, 0.6));
        j->r->forecast.known = false;
        return;
    }
    if (wait > w->now && !w->by_step) {
        j->r->forecast.known = j->r->forecast.has_t = true;
        j->r->forecast.decided_at_s = judging_caller_seconds(j->v, wait);
    } else if (wait > w->now) {
        j->r->forecast.known = j->r->forecast.has_step = true;
        j->r->forecast.decided_at_step = judging_step(ceil(wait));
    }
    judging_conclude(j, VERDICT_UNDECIDED, 0.5);
}

/* Returns true if growth in the last third is small compared with both the earlier growth and all
 * memory. Comparing with the earlier growth alone is not enough: if the earlier growth includes
 * start-up, even a leak is comparatively small. */
static bool has_nearly_ended(const struct shape *s)
{
    return s->last_third < fmax(fmin(0.1 * s->growth, 0.06 * s->floor_last), s->material);
}

void judge_open(struct judging *j, double cap)
{
    const struct shape *s = &j->s;
    const struct view *w = &j->w;
    const struct verdict_options *o = &j->v->options;
    double elapsed = w->now - j->began;
    double warmup_x = j->v->step_only        ? (double)o->warmup_steps
                      : w->seconds_per_x > 0 ? o->warmup_s / w->seconds_per_x
                                             : o->warmup_s;
    bool is_rise = judge_is_rise(j);
    struct open_rise rise = {0};
    if (w->by_step && !j->v->step_only)
        warmup_x *= 2; /* steps are reported, so an epoch end may still be reported too */
    if (is_rise)
        rise = open_rise_of(j, elapsed, warmup_x);
    if (rise.leak) {
        judge_leaking(j, cap);
        return;
    }
    if (s->rising && judge_over(j))
        return;
    if (is_rise)
        add_reason_open(j, &rise, elapsed, warmup_x);
    if (!s->rising || (s->slope_ratio < 0.3 && has_nearly_ended(s)))
        judge_level(j, s->rising ? fmin(cap, 0.8) : cap);
    else
        leave_open(j, cap, elapsed, rise.wait);
}
