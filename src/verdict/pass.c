/* Growth inside the first pass over the data, and after it. */
#include "verdict/judging.h"

#include <math.h>

enum { STEADY_POINTS = 6, THROUGH_POINTS = 10 }; /* after the pass, to be judged */
enum { CLEAN_POINTS = 3 };                       /* where it is one line without noise */
static const double SECOND_PASS = 0.4;   /* of the material growth counts after a second pass */
static const double END_Z = 2;           /* deviations to the upper end of a slope */
static const double END_PART = 0.3;      /* of the slope before: so slow has ended */
static const double SOON_PART = 0.3;     /* of the pass's pace: it may well go on */
static const double SOON_PACE = 0.6;     /* so fast it is no mere tail */
static const double SOON_PASS = 0.5;     /* passes after the first, until which that is said */
static const double GRACE_PART = 0.15;   /* of a pass: what must be seen after it */
static const double THROUGH_CAP = 0.9;   /* of confidence */
static const double THROUGH_PACE = 0.75; /* of the pass, after it: as fast, or that much faster */
static const double THROUGH_LATE = 0.7;  /* of the pass, in the last part of what followed … */
static const double THROUGH_LAST = 0.35; /* … which is this much of it */
static const double THROUGH_ROUGHNESS = 0.04; /* rms over rise: steps may be those of a cache */
static const double THROUGH_PART = 0.9;       /* of all there is: one rise */
static const double CLEAN_ROUGHNESS = 0.02; /* rms over rise, where few readings follow the pass */
static const double CLEAN_PACE = 0.85;      /* of the pass, after it */
static const double REST_PART =
    0.3; /* of all growth: so much is left once the largest jumps are out */
static const double OWN_PART = 0.5; /* of the growth after it: a line's that is its own */

/* Inside the first pass: growth is filling, whatever its slope. */
void judge_first_pass(struct judging *j)
{
    struct verdict_result *r = j->r;
    const struct view *w = &j->w;
    const struct shape *s = &j->s;
    double room, left = fmax(0, j->pass_end - w->now), slope;
    double known = j->pass_end + (left > 0 ? 0 : GRACE_PART * (j->pass_end - w->start));
    size_t third = w->n / 3;
    struct fit_sums sums;
    if (!s->rising || (s->slope_ratio < 0.15 && w->n >= POINTS_AT_LEAST) ||
        (s->may_end && s->sep.end_shape == FIT_STEP)) {
        judge_level(j, 0.8);
        return;
    }
    fit_sums_build(&sums, w->x, w->y, w->n);
    slope = fmax(0, fit_sums_line(&sums, w->x, third, w->n).slope);
    r->forecast.known = r->forecast.has_ceiling = true;
    r->forecast.ceiling_bytes = w->y[w->n - 1] + slope * (left + w->now - w->x[w->n - 1]);
    if (w->by_step) {
        r->forecast.has_step = true;
        r->forecast.decided_at_step = judging_step(ceil(known));
        if (w->seconds_per_x > 0) {
            r->forecast.has_t = true;
            r->forecast.decided_at_s =
                judging_caller_seconds(j->v, j->v->last_step_s) +
                fmax(0, known - w->now) * judging_seconds_per_step(j->v, w->x[third]);
        }
    }
    if (j->v->batch)
        r->forecast.bytes_per_example = slope / (double)j->v->batch;
    if (w->now < j->pass_end)
        judging_say(r, VERDICT_SAID_FIRST_PASS, w->now, j->pass_end, slope,
                    r->forecast.bytes_per_example);
    else
        judging_say(r, VERDICT_SAID_PASS_JUST_ENDED, j->pass_end, known, 0, 0);
    double limit_bytes = 0;
    if (j->limit && j->limit->known) {
        limit_bytes = (double)j->limit->limit_bytes;
        room = (double)j->limit->limit_bytes - (double)j->limit->other_bytes;
        r->forecast.has_fits = true;
        r->forecast.fits = r->forecast.ceiling_bytes <= room;
    }
    judging_say(r, VERDICT_SAID_CEILING, r->forecast.ceiling_bytes, limit_bytes, r->forecast.fits,
                0);
    j->rate_from = w->x[third];
    judging_conclude(j, VERDICT_FILLING, 0.9);
}

/* What came after the first pass. */
struct after {
    struct view w;
    struct shape s;
    double pass, beyond;    /* its length, and that of what followed */
    double slope_in, since; /* slope of the pass and the growth since, both of the low tide */
    double expected;        /* what the pass's pace would have brought */
};

static void after_build(const struct judging *j, struct after *ret)
{
    struct fit_sums sums;
    size_t k = 0;
    view_build(&ret->w, j->v, j->w.by_step, j->history, nextafter(j->pass_end, HUGE_VAL));
    ret->pass = fmax(1e-9, j->pass_end - j->w.start);
    ret->beyond = j->w.now - j->pass_end;
    while (k < j->w.n && j->w.x[k] <= j->pass_end)
        k++;
    fit_sums_build(&sums, j->w.x, j->w.low, j->w.n);
    /* A pass with fewer than two readings: up to the first one after it. */
    if (k < 2 && k + 1 < j->w.n)
        k++;
    ret->slope_in = k >= 2 ? fmax(0, fit_sums_line(&sums, j->w.x, k / 4, k).slope) : 0;
    ret->since = ret->expected = 0;
    if (ret->w.n) {
        ret->since = ret->w.low[ret->w.n - 1] - ret->w.low[0];
        ret->expected = ret->slope_in * (ret->w.x[ret->w.n - 1] - ret->w.x[0]);
    }
    shape_of(&ret->w,
             (ret->beyond >= ret->pass ? SECOND_PASS : 1) * j->v->options.material_fraction,
             &ret->s);
}

static double after_pace(const struct after *a)
{
    return a->expected > 0 ? a->since / a->expected : 1;
}

/* The steepest that the N readings at X and Y may be rising, for all that their noise hides. */
static double steepest(const double *x, const double *y, size_t n)
{
    struct fit_sums sums;
    struct fit_line line;
    double n_eff;
    fit_sums_build(&sums, x, y, n);
    line = fit_sums_line(&sums, x, 0, n);
    n_eff = fit_effective(n, fit_line_rho(x, y, n, &line));
    return line.span > 0 ? line.slope + END_Z * line.rms * sqrt(12 / fmax(1, n_eff - 2)) / line.span
                         : HUGE_VAL;
}

/* That a rise is not certain does not say that it has ended. Since the pass the low tide rose by a
 * good part of what was expected, under noise that is larger than growth that counts, after a pass
 * in which it rose as well: true unless the block minima of late, in the last half, third or
 * quarter, show that it is over. */
static bool may_go_on(const struct judging *j, const struct after *a)
{
    const struct view *w = &a->w;
    double counts = j->v->options.material_fraction * w->low[0];
    double before = fmax(a->slope_in, a->since / (w->x[w->n - 1] - w->x[0]));
    if (a->since <= fmax(counts, 0.3 * a->expected) || 4 * w->sigma <= counts ||
        a->slope_in * a->pass <= counts || judge_same_floor(w, counts, END_PART * before))
        return false;
    for (size_t part = 2; part <= 4; part++) {
        size_t from = w->n - w->n / part;
        if (w->n - from >= STEADY_POINTS &&
            steepest(w->x + from, w->y + from, w->n - from) < END_PART * before)
            return false;
    }
    return true;
}

/* That growth has ended cannot be seen before it would have brought an amount that counts: since
 * the pass it went on at a good part of its pace, and all that was expected is too little to be
 * told from a level. */
static bool too_soon(const struct judging *j, const struct after *a)
{
    double counts = j->v->options.material_fraction * a->w.low[0];
    return a->since > (a->expected < counts ? SOON_PART : SOON_PACE) * a->expected &&
           a->beyond < SOON_PASS * a->pass && a->slope_in * a->pass > counts;
}

/* Slower than in the pass, and the tail of one curve through both, or a rise of its own? Of its
 * own, if no curve that ends explains both without a line beside it, and that line, at the least it
 * may rise, has most of the growth since the pass. */
static bool is_own(const struct judging *j, const struct after *a)
{
    double part = (a->w.x[a->w.n - 1] - a->w.x[0]) / (j->w.x[j->w.n - 1] - j->w.x[0]);
    return j->s.needs_line && part * j->s.line_least > OWN_PART * a->since;
}

/* The end of the pass has left no trace: all there is, the pass and what followed, is one rise, and
 * it goes on as fast, in the later half of what followed too. What the pass filled would have
 * stopped rising with it. The cleaner the line, the fewer readings tell. */
static bool passes_through(const struct judging *j, const struct after *a)
{
    const struct shape *s = &j->s;
    const struct view *w = &a->w;
    bool is_clean = s->roughness <= CLEAN_ROUGHNESS && a->beyond >= GRACE_PART * a->pass;
    double pace = w->n < THROUGH_POINTS ? CLEAN_PACE : THROUGH_PACE;
    double end = w->x[w->n - 1], late = 0, part = THROUGH_LAST * (end - w->x[0]);
    size_t i = w->n - 1;
    if (w->n < (is_clean ? CLEAN_POINTS : THROUGH_POINTS) || !(a->expected > 0) ||
        a->since < pace * a->expected || a->since * pace > a->expected ||
        s->before != BEFORE_NOTHING || s->may_end || !judge_is_rise(j) || s->chunky ||
        s->roughness > THROUGH_ROUGHNESS ||
        s->span < THROUGH_PART * (j->w.x[j->w.n - 1] - j->w.x[0]))
        return false;
    while (i > 0 && w->x[i - 1] >= end - part)
        i--;
    late = w->low[w->n - 1] - w->low[i];
    return late >= THROUGH_LATE * a->slope_in * (end - w->x[i]) &&
           a->since > fmax(j->v->options.material_fraction * w->low[0], 2 * w->sigma);
}

/* Of what followed the pass by itself: is it a leak? K has its view and shape. The rise must be of
 * its own: certain, and either no mere tail of the first pass's or seen for as long again. */
static bool is_leak(const struct judging *j, const struct judging *k, const struct after *a)
{
    const struct shape *s = &a->s;
    double pace = after_pace(a), elapsed_s = (j->w.now - j->began) * j->w.seconds_per_x;
    /* Little growth is enough if it is a plain line over a whole pass, and so is slow growth. */
    bool little = a->since <= j->v->options.material_fraction * s->floor_first;
    bool plain = !s->chunky && s->sep.bic_line < fmin(s->sep.bic_power, s->sep.bic_end) + 2;
    bool own = is_own(j, a);
    bool tail =
        (pace < 0.15 && a->beyond < 2 * a->pass && !(plain && !little && a->beyond >= a->pass)) ||
        (pace < 0.6 && a->beyond < a->pass) ||
        (pace < 0.8 && elapsed_s > 0 && elapsed_s < 0.5 * j->v->options.warmup_s && !own);
    /* One curve through both, or a rise that was bent within the pass and is too young. */
    bool slowing = (s->before != BEFORE_FLAT && j->s.may_end) ||
                   (j->s.straight && j->s.before == BEFORE_STEEPER && !own &&
                    j->s.span < 0.4 * (j->w.now - j->began));
    /* A few jumps were all of it, and what is left are a few more. */
    bool jumps = s->chunky && s->rise < REST_PART * a->since;

    return judge_is_rise(k) && !jumps && !tail && !slowing && (plain || !little) &&
           !(s->before == BEFORE_FLAT ? s->part_may_end : s->may_end && !j->s.is_power) &&
           (s->before != BEFORE_STEEPER ||
            (s->line_remains && s->span > 0.4 * a->beyond && !s->part_may_end)) &&
           (s->before == BEFORE_NOTHING || s->before == BEFORE_STEEPER ||
            judge_late_wait(k, 0.3 * a->pass) == 0);
}

/* Too little of what followed the pass has been seen to say that its growth ended with it. */
static bool is_early(const struct judging *j, const struct after *a)
{
    bool goes_on = a->expected > 0 && a->since > 0.3 * a->expected;
    if (a->w.n < (j->v->step_only ? 2 : STEADY_POINTS) || judging_beyond_pass(j) < JUDGING_BEYOND)
        return true;
    if (a->beyond < GRACE_PART * a->pass && a->s.rising && goes_on)
        return true;
    if (!a->s.rising && too_soon(j, a))
        return true;
    return a->w.n < STEADY_POINTS && goes_on; /* a table of few rows */
}

/* Why what rises after the pass is no leak yet; K has its shape. */
static void say_why_open(struct judging *j, const struct judging *k, const struct after *a)
{
    const struct shape *s = &a->s;
    double pace = after_pace(a);
    if (s->may_end || (s->before != BEFORE_FLAT && j->s.may_end))
        judging_say(j->r, VERDICT_SAID_SATURATING, 0, 0, 0, 0);
    else if (!judge_is_rise(k))
        judging_say(j->r, VERDICT_SAID_NOISE, s->growth, s->spread, 0, 0);
    else if (pace < 1)
        judging_say(j->r, VERDICT_SAID_TAIL, pace, 0, 0, 0);
    else
        judging_say(j->r, VERDICT_SAID_LATE, s->onset, s->span, s->rise / fmax(1, s->floor_first),
                    j->w.by_step);
}

static void leave_open(struct judging *j)
{
    judging_conclude(j, VERDICT_UNDECIDED, 0.5);
    j->rate_from = j->pass_end;
}

/* What rose after the pass: a leak, or open. Returns false where it is neither. */
static bool judge_rise_after(struct judging *j, const struct after *a)
{
    struct judging k = *j;
    double pace = after_pace(a);
    bool little = a->since <= j->v->options.material_fraction * a->s.floor_first;
    k.w = a->w;
    k.s = a->s;
    if (is_leak(j, &k, a)) {
        judging_say(j->r, VERDICT_SAID_BEYOND_PASS, j->pass_end, a->since,
                    a->expected > 0 ? pace : 0, j->w.by_step);
        judge_leaking(&k, 0.97);
        j->rate_from = k.rate_from;
        return true;
    }
    if (passes_through(j, a) || judge_unbent(j)) {
        judging_say(j->r, VERDICT_SAID_BEYOND_PASS, j->pass_end, a->since, pace, j->w.by_step);
        judge_leaking(j, THROUGH_CAP);
        return true;
    }
    if (a->s.slope_ratio > 0.3 && a->since > a->s.material &&
        !judge_came_back(&a->w, a->s.material) &&
        (pace >= 0.15 || (!little && judge_is_rise(&k)))) {
        judging_say(j->r, VERDICT_SAID_GROWS, a->beyond, j->w.by_step, a->since, 0);
        say_why_open(j, &k, a);
        leave_open(j);
        return true;
    }
    return false;
}

bool judge_after_pass(struct judging *j)
{
    struct after a;
    after_build(j, &a);
    if (is_early(j, &a)) {
        bool is_through = a.w.n >= CLEAN_POINTS && a.w.n < STEADY_POINTS && passes_through(j, &a);
        if (!is_through && !judge_unbent(j))
            return false;
        judging_say(j->r, VERDICT_SAID_BEYOND_PASS, j->pass_end, a.since, after_pace(&a),
                    j->w.by_step);
        judge_leaking(j, THROUGH_CAP);
        j->phase = 1;
        return true;
    }
    j->phase = 1;
    if (a.s.rising && a.w.n >= STEADY_POINTS && judge_rise_after(j, &a))
        return true;
    if (a.w.n >= STEADY_POINTS && may_go_on(j, &a)) {
        judging_say(j->r, VERDICT_SAID_GROWS, a.beyond, j->w.by_step, a.since, 0);
        judging_say(j->r, VERDICT_SAID_NOISE, a.since, a.w.sigma, 0, 0);
        leave_open(j);
        return true;
    }
    judge_level(j, 0.97);
    return true;
}
