/* Judges growth within the first epoch and after it. */
#include "verdict/judging.h"

#include <math.h>

/* Number of readings after the first epoch that are required for a verdict. */
enum { STEADY_POINTS = 6 };
/* After a second epoch, the smallest material growth is multiplied by this. */
static const double SECOND_EPOCH = 0.4;
/* The upper bound of a slope is this many standard errors above the slope. */
static const double END_Z = 2;
/* Growth has ended if its slope is below this fraction of the earlier slope. */
static const double END_PART = 0.3;
/* It is too early to judge growth after the epoch if it exceeds this fraction of the growth that
 * the epoch's rate predicts. SOON_PART applies while the predicted growth is too small to be
 * material, SOON_PACE after that. */
static const double SOON_PART = 0.3;
static const double SOON_PACE = 0.6;
/* It is not too early any more once this many further epochs have passed. */
static const double SOON_EPOCHS = 0.5;
/* Growth that continues after the first epoch is not judged before this fraction of a second epoch
 * has passed. */
static const double GRACE_PART = 0.15;
/* Highest confidence in a leak that grows through the end of the first epoch. */
static const double THROUGH_CAP = 0.9;
/* Growth is a leak only if at least this fraction of it remains after its largest jumps are
 * removed. */
static const double REST_PART = 0.3;
/* Growth after the epoch is a separate rise only if the fitted line explains this fraction of
 * it. */
static const double OWN_PART = 0.5;

void judge_first_epoch(struct judging *j)
{
    struct verdict_result *r = j->r;
    const struct view *w = &j->w;
    const struct shape *s = &j->s;
    double room, left = fmax(0, j->epoch_end - w->now), slope;
    double known = j->epoch_end + (left > 0 ? 0 : GRACE_PART * (j->epoch_end - w->start));
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
    if (w->now < j->epoch_end)
        judging_add_evidence(r, VERDICT_SAID_FIRST_EPOCH, w->now, j->epoch_end, slope,
                             r->forecast.bytes_per_example);
    else
        judging_add_evidence(r, VERDICT_SAID_EPOCH_JUST_ENDED, j->epoch_end, known, j->w.by_step,
                             0);
    double limit_bytes = 0;
    if (j->limit && j->limit->known) {
        limit_bytes = (double)j->limit->limit_bytes;
        room = (double)j->limit->limit_bytes - (double)j->limit->other_bytes;
        r->forecast.has_fits = true;
        r->forecast.fits = r->forecast.ceiling_bytes <= room;
    }
    judging_add_evidence(r, VERDICT_SAID_CEILING, r->forecast.ceiling_bytes, limit_bytes,
                         r->forecast.fits, 0);
    j->rate_from = w->x[third];
    judging_conclude(j, VERDICT_FILLING, 0.9);
}

/* The part of the series after the first epoch. */
struct after {
    struct view w;
    struct shape s;
    double epoch, beyond; /* lengths in units of x: of the epoch, and of the time since its end */
    /* Slope of the baseline in the epoch; growth of the baseline since its end. */
    double slope_in, since;
    /* The growth since the end of the epoch, had it continued at the epoch's rate. */
    double expected;
};

static void after_build(const struct judging *j, struct after *ret)
{
    struct fit_sums sums;
    size_t k = 0;
    view_build(&ret->w, j->v, j->w.by_step, j->history, nextafter(j->epoch_end, HUGE_VAL));
    ret->epoch = fmax(1e-9, j->epoch_end - j->w.start);
    ret->beyond = j->w.now - j->epoch_end;
    while (k < j->w.n && j->w.x[k] <= j->epoch_end)
        k++;
    fit_sums_build(&sums, j->w.x, j->w.low, j->w.n);
    /* The slope needs two readings. If only one is within the epoch, the next reading is used as
     * well. */
    if (k < 2 && k + 1 < j->w.n)
        k++;
    ret->slope_in = k >= 2 ? fmax(0, fit_sums_line(&sums, j->w.x, k / 4, k).slope) : 0;
    ret->since = ret->expected = 0;
    if (ret->w.n) {
        ret->since = ret->w.low[ret->w.n - 1] - ret->w.low[0];
        ret->expected = ret->slope_in * (ret->w.x[ret->w.n - 1] - ret->w.x[0]);
    }
    shape_of(&ret->w,
             (ret->beyond >= ret->epoch ? SECOND_EPOCH : 1) * j->v->options.material_fraction,
             &ret->s);
}

static double after_pace(const struct after *a)
{
    return a->expected > 0 ? a->since / a->expected : 1;
}

/* Returns an upper bound on the slope of N readings, END_Z standard errors above the fitted
 * slope. */
static double slope_upper_bound(const double *x, const double *y, size_t n)
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

/* Returns true if growth may continue although it is not significant. The baseline must have grown
 * within the epoch, and since then by a good part of the expected amount, and noise must be able to
 * hide the smallest material growth. Returns false if the block minima of the last half, third or
 * quarter show that growth has ended. */
static bool may_continue(const struct judging *j, const struct after *a)
{
    const struct view *w = &a->w;
    double counts = j->v->options.material_fraction * w->low[0];
    double before = fmax(a->slope_in, a->since / (w->x[w->n - 1] - w->x[0]));
    if (a->since <= fmax(counts, 0.3 * a->expected) || 4 * w->sigma <= counts ||
        a->slope_in * a->epoch <= counts || judge_same_baseline(w, counts, END_PART * before))
        return false;
    for (size_t part = 2; part <= 4; part++) {
        size_t from = w->n - w->n / part;
        if (w->n - from >= STEADY_POINTS &&
            slope_upper_bound(w->x + from, w->y + from, w->n - from) < END_PART * before)
            return false;
    }
    return true;
}

/* Returns true if it is too early to see whether growth ended: since the epoch, memory has grown at
 * a good part of the epoch's rate, but for less than SOON_EPOCHS epochs. */
static bool too_soon(const struct judging *j, const struct after *a)
{
    double counts = j->v->options.material_fraction * a->w.low[0];
    return a->since > (a->expected < counts ? SOON_PART : SOON_PACE) * a->expected &&
           a->beyond < SOON_EPOCHS * a->epoch && a->slope_in * a->epoch > counts;
}

/* Returns true if slower growth after the epoch is a rise of its own, and not the tail of a curve
 * that began within the epoch. This is so if no saturating curve fits the whole series without an
 * additional line, and the line certainly explains most of the growth since the epoch. */
static bool is_separate_rise(const struct judging *j, const struct after *a)
{
    double part = (a->w.x[a->w.n - 1] - a->w.x[0]) / (j->w.x[j->w.n - 1] - j->w.x[0]);
    return j->s.needs_line && part * j->s.line_least > OWN_PART * a->since;
}

/* Returns true if the growth after the epoch, taken alone, is a leak. K holds the view and the
 * shape of that growth. The growth must be significant. In addition, it must clearly differ from
 * the tail of the first epoch's growth, or last as long as the epoch. */
static bool is_leak(const struct judging *j, const struct judging *k, const struct after *a)
{
    const struct shape *s = &a->s;
    double pace = after_pace(a), elapsed_s = (j->w.now - j->began) * j->w.seconds_per_x;
    /* Small growth must be a straight line. If growth is much slower than in the epoch, it must
     * remain a straight line for another epoch. */
    bool little = a->since <= j->v->options.material_fraction * s->floor_first;
    bool plain = !s->chunky && s->sep.bic_line < fmin(s->sep.bic_power, s->sep.bic_end) + 2;
    bool own = is_separate_rise(j, a);
    bool tail =
        (pace < 0.15 && a->beyond < 2 * a->epoch && !(plain && !little && a->beyond >= a->epoch)) ||
        (pace < 0.6 && a->beyond < a->epoch) ||
        (pace < 0.8 && elapsed_s > 0 && elapsed_s < 0.5 * j->v->options.warmup_s && !own);
    /* One saturating curve fits the growth within and after the epoch, or growth slowed down only
     * recently. */
    bool slowing = (s->before != BEFORE_FLAT && j->s.may_end) ||
                   (j->s.straight && j->s.before == BEFORE_STEEPER && !own &&
                    j->s.span < 0.4 * (j->w.now - j->began));
    /* A few jumps caused most of the growth, and little growth remains without them. */
    bool jumps = s->chunky && s->rise < REST_PART * a->since;

    return judge_is_rise(k) && !jumps && !tail && !slowing && (plain || !little) &&
           !(s->before == BEFORE_FLAT ? s->part_may_end : s->may_end && !j->s.is_power) &&
           (s->before != BEFORE_STEEPER ||
            (s->line_remains && s->span > 0.4 * a->beyond && !s->part_may_end)) &&
           (s->before == BEFORE_NOTHING || s->before == BEFORE_STEEPER ||
            judge_late_wait(k, 0.3 * a->epoch) == 0);
}

/* Returns true if too few readings have followed the epoch to decide whether growth ended with the
 * epoch. */
static bool is_early(const struct judging *j, const struct after *a)
{
    bool continues = a->expected > 0 && a->since > 0.3 * a->expected;
    if (a->w.n < (j->v->step_only ? 2 : STEADY_POINTS) || judging_beyond_epoch(j) < JUDGING_BEYOND)
        return true;
    if (a->beyond < GRACE_PART * a->epoch && a->s.rising && continues)
        return true;
    if (!a->s.rising && too_soon(j, a))
        return true;
    /* only a table by step can have so few readings here */
    return a->w.n < STEADY_POINTS && continues;
}

/* Adds the reason why growth after the epoch is not judged as a leak yet. K holds the shape of that
 * growth. */
static void add_reason_open(struct judging *j, const struct judging *k, const struct after *a)
{
    const struct shape *s = &a->s;
    double pace = after_pace(a);
    if (s->may_end || (s->before != BEFORE_FLAT && j->s.may_end))
        judging_add_evidence(j->r, VERDICT_SAID_SATURATING, 0, 0, 0, 0);
    else if (!judge_is_rise(k))
        judging_add_evidence(j->r, VERDICT_SAID_NOISE, s->growth, s->spread, 0, 0);
    else if (pace < 1)
        judging_add_evidence(j->r, VERDICT_SAID_TAIL, pace, 0, 0, 0);
    else
        judging_add_evidence(j->r, VERDICT_SAID_LATE, s->onset, s->span,
                             s->rise / fmax(1, s->floor_first), j->w.by_step);
}

static void leave_undecided(struct judging *j)
{
    judging_conclude(j, VERDICT_UNDECIDED, 0.5);
    j->rate_from = j->epoch_end;
}

/* Judges growth after the epoch as leaking or undecided. Returns false if it is neither. */
static bool judge_rise_after(struct judging *j, const struct after *a)
{
    struct judging k = *j;
    double pace = after_pace(a);
    bool little = a->since <= j->v->options.material_fraction * a->s.floor_first;
    k.w = a->w;
    k.s = a->s;
    if (is_leak(j, &k, a)) {
        judging_add_evidence(j->r, VERDICT_SAID_AFTER_EPOCH, j->epoch_end, a->since,
                             a->expected > 0 ? pace : 0, j->w.by_step);
        judge_leaking(&k, 0.97);
        j->rate_from = k.rate_from;
        return true;
    }
    if (judge_unbent(j)) {
        judging_add_evidence(j->r, VERDICT_SAID_AFTER_EPOCH, j->epoch_end, a->since, pace,
                             j->w.by_step);
        judge_leaking(j, THROUGH_CAP);
        return true;
    }
    if (a->s.slope_ratio > 0.3 && a->since > a->s.material &&
        !judge_returned_to_level(&a->w, a->s.material) &&
        (pace >= 0.15 || (!little && judge_is_rise(&k)))) {
        judging_add_evidence(j->r, VERDICT_SAID_GROWS, a->beyond, j->w.by_step, a->since, 0);
        add_reason_open(j, &k, a);
        leave_undecided(j);
        return true;
    }
    return false;
}

bool judge_after_epoch(struct judging *j)
{
    struct after a;
    after_build(j, &a);
    if (is_early(j, &a)) {
        if (!judge_unbent(j))
            return false;
        judging_add_evidence(j->r, VERDICT_SAID_AFTER_EPOCH, j->epoch_end, a.since, after_pace(&a),
                             j->w.by_step);
        judge_leaking(j, THROUGH_CAP);
        j->phase = 1;
        return true;
    }
    j->phase = 1;
    if (a.s.rising && a.w.n >= STEADY_POINTS && judge_rise_after(j, &a))
        return true;
    if (a.w.n >= STEADY_POINTS && may_continue(j, &a)) {
        judging_add_evidence(j->r, VERDICT_SAID_GROWS, a.beyond, j->w.by_step, a.since, 0);
        judging_add_evidence(j->r, VERDICT_SAID_NOISE, a.since, a.w.sigma, 0, 0);
        leave_undecided(j);
        return true;
    }
    judge_level(j, 0.97);
    return true;
}
