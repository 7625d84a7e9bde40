/* Growth inside the first pass over the data, and after it. */
#include "verdict/judging.h"

#include <math.h>

enum { STEADY_POINTS = 6, THROUGH_POINTS = 10 }; /* after the pass, to be judged */
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
static const double OWN_PART = 0.5;           /* of the growth after it: a line's that is its own */

/* Inside the first pass: growth is filling, whatever its slope. */
void judge_first_pass(struct judging *j)
{
    struct verdict_result *r = j->r;
    const struct view *w = &j->w;
    const struct shape *s = &j->s;
    double room, left = fmax(0, j->pass_end - w->now), slope;
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
        r->forecast.decided_at_step = judging_step(j->pass_end);
        if (w->seconds_per_x > 0) {
            r->forecast.has_t = true;
            r->forecast.decided_at_s = judging_caller_seconds(j->v, j->v->last_step_s) +
                                       left * judging_seconds_per_step(j->v, w->x[third]);
        }
    }
    if (j->v->batch)
        r->forecast.bytes_per_example = slope / (double)j->v->batch;
    if (w->now < j->pass_end)
        judging_say(r, VERDICT_SAID_FIRST_PASS, w->now, j->pass_end, slope,
                    r->forecast.bytes_per_example);
    else
        judging_say(r, VERDICT_SAID_PASS_JUST_ENDED, j->pass_end,
                    j->pass_end + GRACE_PART * (j->pass_end - j->w.start), 0, 0);
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

/* Slope of the first pass and the growth since, both of the low tide. */
static void pass_slopes(const struct judging *j, const struct view *after, double *ret_in,
                        double *ret_since)
{
    struct fit_sums sums;
    size_t k = 0;

    while (k < j->w.n && j->w.x[k] <= j->pass_end)
        k++;
    fit_sums_build(&sums, j->w.x, j->w.low, j->w.n);
    /* A pass with fewer than two readings: up to the first one after it. */
    if (k < 2 && k + 1 < j->w.n)
        k++;
    *ret_in = k >= 2 ? fmax(0, fit_sums_line(&sums, j->w.x, k / 4, k).slope) : 0;
    *ret_since = after->n ? after->low[after->n - 1] - after->low[0] : 0;
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

/* That a rise is not certain does not say that it has ended. SINCE the pass the low tide rose by a
 * good part of EXPECTED, under noise that is larger than growth that counts, after a pass in which
 * it rose as well: true unless the block minima of late, in the last half, third or quarter, show
 * that it is over. */
static bool may_go_on(const struct judging *j, const struct view *after, double slope_in,
                      double since, double expected)
{
    double counts = j->v->options.material_fraction * after->low[0];
    double before = fmax(slope_in, since / (after->x[after->n - 1] - after->x[0]));

    if (since <= fmax(counts, 0.3 * expected) || 4 * after->sigma <= counts ||
        slope_in * (j->pass_end - j->w.start) <= counts)
        return false;
    for (size_t part = 2; part <= 4; part++) {
        size_t from = after->n - after->n / part;

        if (after->n - from >= STEADY_POINTS &&
            steepest(after->x + from, after->y + from, after->n - from) < END_PART * before)
            return false;
    }
    return true;
}

/* That growth has ended cannot be seen before it would have brought an amount that counts: SINCE
 * the pass it went on at a good part of its pace, and all that was EXPECTED is too little to be
 * told from a level. */
static bool too_soon(const struct judging *j, const struct view *after, double slope_in,
                     double since, double expected)
{
    double counts = j->v->options.material_fraction * after->low[0];

    return since > (expected < counts ? SOON_PART : SOON_PACE) * expected &&
           j->w.now - j->pass_end < SOON_PASS * (j->pass_end - j->w.start) &&
           slope_in * (j->pass_end - j->w.start) > counts;
}

/* Slower than in the pass, and the tail of one curve through both, or a rise of its own? Of its
 * own, if no curve that ends explains both without a line beside it, and that line, at the least it
 * may rise, has most of the growth SINCE the pass. */
static bool is_own(const struct judging *j, const struct view *after, double since)
{
    double part = (after->x[after->n - 1] - after->x[0]) / (j->w.x[j->w.n - 1] - j->w.x[0]);

    return j->s.needs_line && part * j->s.line_least > OWN_PART * since;
}

/* The end of the pass has left no trace: all there is, the pass and what followed, is one rise, and
 * it goes on as fast, in the later half of what followed too. What the pass filled would have
 * stopped rising with it. */
static bool passes_through(const struct judging *j, const struct view *after, double slope_in,
                           double since, double expected)
{
    const struct shape *s = &j->s;
    double end = after->x[after->n - 1], late = 0, part = THROUGH_LAST * (end - after->x[0]);
    size_t i = after->n - 1;

    if (after->n < THROUGH_POINTS || !(expected > 0) || since < THROUGH_PACE * expected ||
        since * THROUGH_PACE > expected || s->before != BEFORE_NOTHING || s->may_end ||
        !judge_is_rise(j) || s->chunky || s->roughness > THROUGH_ROUGHNESS ||
        s->span < THROUGH_PART * (j->w.x[j->w.n - 1] - j->w.x[0]))
        return false;
    while (i > 0 && after->x[i - 1] >= end - part)
        i--;
    late = after->low[after->n - 1] - after->low[i];
    return late >= THROUGH_LATE * slope_in * (end - after->x[i]) &&
           since > fmax(j->v->options.material_fraction * after->low[0], 2 * after->sigma);
}

/* Why what rises after the pass is no leak yet; J's shape is that of what came after it. */
static void say_why_open(struct judging *j, double pace, bool may_end)
{
    const struct shape *s = &j->s;

    if (may_end)
        judging_say(j->r, VERDICT_SAID_SATURATING, 0, 0, 0, 0);
    else if (!judge_is_rise(j))
        judging_say(j->r, VERDICT_SAID_NOISE, s->growth, s->spread, 0, 0);
    else if (pace < 1)
        judging_say(j->r, VERDICT_SAID_TAIL, pace, 0, 0, 0);
    else
        judging_say(j->r, VERDICT_SAID_LATE, s->onset, s->span, s->rise / fmax(1, s->floor_first),
                    j->w.by_step);
}

/* The first pass is over: what still rises is not its data. Returns false if too little of what
 * followed has been seen. */
bool judge_after_pass(struct judging *j)
{
    struct view after;
    struct shape s;
    double pass = fmax(1e-9, j->pass_end - j->w.start), beyond = j->w.now - j->pass_end;
    double slope_in, since, expected;
    size_t need = j->v->step_only ? 2 : STEADY_POINTS;

    view_build(&after, j->v, j->w.by_step, j->history, nextafter(j->pass_end, HUGE_VAL));
    if (after.n < need || beyond < 0.05 * pass)
        return false;
    pass_slopes(j, &after, &slope_in, &since);
    shape_of(&after, (beyond >= pass ? SECOND_PASS : 1) * j->v->options.material_fraction, &s);
    expected = slope_in * (after.x[after.n - 1] - after.x[0]);
    if (beyond < GRACE_PART * pass && s.rising && expected > 0 && since > 0.3 * expected)
        return false;
    if (!s.rising && too_soon(j, &after, slope_in, since, expected))
        return false;
    if (after.n < STEADY_POINTS && expected > 0 && since > 0.3 * expected)
        return false; /* a table of few rows: it goes on, but that is not enough to say leak */
    j->phase = 1;
    /* The rise must be of its own: certain, and either no mere tail of the first pass's or seen for
     * as long again. */
    if (s.rising && after.n >= STEADY_POINTS) {
        struct judging k = *j;
        double pace = expected > 0 ? since / expected : 1;
        double elapsed_s = (j->w.now - j->began) * j->w.seconds_per_x;
        /* Little growth is enough if it is a plain line over a whole pass, and so is slow growth.
         */
        bool little = since <= j->v->options.material_fraction * s.floor_first;
        bool plain = !s.chunky && s.sep.bic_line < fmin(s.sep.bic_power, s.sep.bic_end) + 2;
        bool own = is_own(j, &after, since);
        bool tail =
            (pace < 0.15 && beyond < 2 * pass && !(plain && !little && beyond >= pass)) ||
            (pace < 0.6 && beyond < pass) ||
            (pace < 0.8 && elapsed_s > 0 && elapsed_s < 0.5 * j->v->options.warmup_s && !own);
        /* One curve through both, or a rise that was bent within the pass and is too young. */
        bool slowing = (s.before != BEFORE_FLAT && j->s.may_end) ||
                       (j->s.straight && j->s.before == BEFORE_STEEPER && !own &&
                        j->s.span < 0.4 * (j->w.now - j->began));

        k.w = after;
        k.s = s;
        if (judge_is_rise(&k) && !tail && !slowing && (plain || !little) &&
            !(s.before == BEFORE_FLAT ? s.part_may_end : s.may_end && !j->s.is_power) &&
            (s.before != BEFORE_STEEPER ||
             (s.line_remains && s.span > 0.4 * beyond && !s.part_may_end)) &&
            (s.before == BEFORE_NOTHING || s.before == BEFORE_STEEPER ||
             judge_late_wait(&k, 0.3 * pass) == 0)) {
            judging_say(j->r, VERDICT_SAID_BEYOND_PASS, j->pass_end, since,
                        expected > 0 ? since / expected : 0, j->w.by_step);
            judge_leaking(&k, 0.97);
            j->rate_from = k.rate_from;
            return true;
        }
        if (passes_through(j, &after, slope_in, since, expected)) {
            judging_say(j->r, VERDICT_SAID_BEYOND_PASS, j->pass_end, since, pace, j->w.by_step);
            judge_leaking(j, THROUGH_CAP);
            return true;
        }
        if (s.slope_ratio > 0.3 && since > s.material &&
            (pace >= 0.15 || (!little && judge_is_rise(&k)))) {
            judging_say(j->r, VERDICT_SAID_GROWS, beyond, j->w.by_step, since, 0);
            say_why_open(&k, pace, s.may_end || (s.before != BEFORE_FLAT && j->s.may_end));
            judging_conclude(j, VERDICT_UNDECIDED, 0.5);
            j->rate_from = j->pass_end;
            return true;
        }
    }
    if (after.n >= STEADY_POINTS && may_go_on(j, &after, slope_in, since, expected)) {
        judging_say(j->r, VERDICT_SAID_GROWS, beyond, j->w.by_step, since, 0);
        judging_say(j->r, VERDICT_SAID_NOISE, since, after.sigma, 0, 0);
        judging_conclude(j, VERDICT_UNDECIDED, 0.5);
        j->rate_from = j->pass_end;
        return true;
    }
    judge_level(j, 0.97);
    return true;
}
