/* Finds the shape of a window of the envelope. docs/internals/verdict.md has the sources and
 * reasons. */
#include "verdict/shape.h"

#include <math.h>
#include <string.h>

enum { STRAIGHT_POINTS = 6 };

/* Largest RMS deviation of a straight rise from a line, as a fraction of the rise. A staircase with
 * three steps deviates by 0.096. */
static const double STRAIGHT_RMS = 0.12;
/* Largest RMS deviation from a line of a straight rise that has neither noise nor jumps, as a
 * fraction of the rise. */
static const double TIGHT_RMS = 0.02;
/* In a straight rise, the halves have similar slopes: the lower one is at least this fraction of
 * the higher one, about e^-0.6. */
static const double STRAIGHT_HALVES = 0.55;
static const double DECISIVE = 10; /* difference in BIC required to prefer one model */
/* With at least this many effective points, irregular growth is treated as noise, not as jumps. */
static const double CHUNKY_N_EFF = 20;
/* Smallest effective number of points in the whole window at which curves can be compared. */
static const double N_EFF_FEW_ALL = 20;
/* Smallest effective number of points in the straight part at which curves can be compared. */
static const double N_EFF_FEW = 12;
/* Lower bound on the residual of a fitted curve, as a fraction of the growth. */
static const double MODEL_TRUST = 0.005;

static double growth_since(const struct view *w, double x)
{
    return w->low[w->n - 1] - view_low_at(w, x);
}

/* Returns true if the baseline is one straight rise from slot FROM to the end. */
static bool is_straight(const struct view *w, const struct fit_sums *s, size_t from,
                        double tolerance, struct fit_line *ret)
{
    size_t half = from + (w->n - from) / 2;
    struct fit_line all = fit_sums_line(s, w->x, from, w->n);
    struct fit_line a = fit_sums_line(s, w->x, from, half + 1);
    struct fit_line b = fit_sums_line(s, w->x, half, w->n);
    double rise = all.slope * all.span;
    /* difference between the slopes of the halves that noise alone can cause */
    double slack = 0;
    if (!(rise > 0) || all.rms > fmax(tolerance * rise, 1.5 * w->sigma))
        return false;
    slack = 2 * w->sigma * sqrt(24 / (double)(w->n - from)) / (0.5 * all.span);
    if (b.slope + slack < STRAIGHT_HALVES * a.slope || a.slope + slack < STRAIGHT_HALVES * b.slope)
        return false;
    *ret = all;
    return true;
}

/* Finds the first slot in [FROM, n) at which a much straighter rise follows a level stretch. */
static bool find_hinge(const struct view *w, const struct fit_sums *s, size_t from,
                       const struct fit_line *all, size_t *ret_from, struct fit_line *ret)
{
    for (size_t k = from + 4; k + STRAIGHT_POINTS <= w->n; k++) {
        size_t back = (w->n - k) / 5 > 4 ? (w->n - k) / 5 : 4;
        struct fit_line line = fit_sums_line(s, w->x, k, w->n), before;
        if (k < back || !(line.slope > 0) || line.rms > 0.1 * all->rms ||
            line.span < 0.3 * all->span ||
            line.rms > fmax(TIGHT_RMS * line.slope * line.span, 1.5 * w->sigma))
            continue;
        before = fit_sums_line(s, w->x, k - back, k);
        if (before.slope > 0.25 * line.slope)
            continue;
        *ret_from = k;
        *ret = line;
        return true;
    }
    return false;
}

static void find_straight(const struct view *w, const struct fit_sums *s, struct shape *r)
{
    struct fit_line line = {0}, tight = {0};
    size_t from = 0, inner;
    if (w->n < STRAIGHT_POINTS)
        return;
    while (from + STRAIGHT_POINTS <= w->n && !is_straight(w, s, from, STRAIGHT_RMS, &line))
        from++;
    if (from + STRAIGHT_POINTS > w->n)
        return;
    /* The longest straight part may begin before the actual rise. If a large piece of it is much
     * straighter than the whole, only that piece is the rise. */
    if (find_hinge(w, s, from, &line, &inner, &tight)) {
        from = inner;
        line = tight;
        /* Slots just before the rise that lie on its line belong to it. */
        while (from > 0 && fabs(w->low[from - 1] -
                                (line.at_end - line.slope * (w->x[w->n - 1] - w->x[from - 1]))) <
                               fmax(2 * w->sigma, 0.01 * line.slope * line.span))
            line = fit_sums_line(s, w->x, --from, w->n);
    }
    inner = from;
    while (inner + STRAIGHT_POINTS <= w->n && !is_straight(w, s, inner, TIGHT_RMS, &tight))
        inner++;
    if (inner > from && inner + STRAIGHT_POINTS <= w->n && tight.span > 0.25 * line.span &&
        tight.rms < 0.25 * line.rms) {
        from = inner;
        line = tight;
    }
    r->straight = true;
    r->from = from;
    r->onset = w->x[r->from];
    r->span = line.span;
    r->slope = line.slope;
    r->rise = line.slope * line.span;
}

/* Computes the significance of the straight part from the block minima. The rise of the baseline
 * would look too significant, because the baseline never falls by construction. */
static void straight_significance(const struct view *w, struct shape *r)
{
    size_t n = w->n - r->from, still = 0;
    const double *x = w->x + r->from;
    struct fit_sums s;
    struct fit_line line;
    double y[FIT_MAX], dev[FIT_MAX], rho, typical, sum = 0, squares = 0;
    /* A short spike is not evidence about the baseline, so it is clipped to the usual excess. */
    for (size_t i = 0; i < n; i++)
        dev[i] = w->y[r->from + i] - w->low[r->from + i];
    typical = fit_median(dev, n);
    for (size_t i = 0; i < n; i++)
        y[i] = fmin(w->y[r->from + i], w->low[r->from + i] + 4 * typical + w->sigma);
    fit_sums_build(&s, x, y, n);
    line = fit_sums_line(&s, x, 0, n);
    rho = fit_line_rho(x, y, n, &line);
    r->n_eff = fit_effective(n, rho);
    for (size_t i = 0; i < n; i++)
        dev[i] = fabs(y[i] - (line.at_end + line.slope * (x[i] - x[n - 1])));
    r->spread = 1.4826 * fit_median(dev, n);
    for (size_t i = 1; i < n; i++) {
        double d = w->low[r->from + i] - w->low[r->from + i - 1];
        sum += d;
        squares += d * d;
    }
    r->rises = squares > 0 ? sum * sum / squares : 0;
    r->roughness = r->rise > 0 ? line.rms / r->rise : 0;
    r->chunky = r->rises < 0.4 * (double)(n - 1);
    for (size_t i = 1; i < n; i++)
        still += w->low[r->from + i] - w->low[r->from + i - 1] < 0.1 * sum / (double)(n - 1);
    r->chunky = r->chunky && 2 * still > n && r->n_eff < CHUNKY_N_EFF;
    sum = squares = 0;
    for (size_t i = 1; i < n; i++) {
        double d = y[i] - y[i - 1];
        if (fabs(d) > 3 * w->sigma) {
            sum += d;
            squares += fabs(d);
        }
    }
    r->net = squares > 0 ? sum / squares : 1;
    r->slope_se = line.span > 0 ? fmax(line.rms, MODEL_TRUST * r->rise) *
                                      sqrt(12 / fmax(1, r->n_eff - 2)) / line.span
                                : 0;
    r->t_stat = r->slope_se > 0 ? line.slope / r->slope_se : 0;
}

/* Moves the onset of a rise after a level stretch to the point where that level meets the line
 * through the later half of the rise. */
static void sharpen_onset(const struct view *w, const struct fit_sums *s, struct shape *r)
{
    size_t half = r->from + (w->n - r->from) / 2, from = r->from;
    struct fit_line late = fit_sums_line(s, w->x, half, w->n), line;
    double level = w->low[r->from > 0 ? r->from - 1 : 0], onset;
    if (!(late.slope > 0))
        return;
    onset = w->x[w->n - 1] - (late.at_end - level) / late.slope;
    while (from + STRAIGHT_POINTS < w->n && w->x[from] < onset)
        from++;
    if (from <= r->from)
        return;
    line = fit_sums_line(s, w->x, from, w->n);
    r->flat_before += w->x[from] - r->onset;
    r->from = from;
    r->onset = w->x[from];
    r->span = line.span;
    r->slope = line.slope;
    r->rise = line.slope * line.span;
}

static void describe_before(const struct view *w, const struct fit_sums *s, struct shape *r)
{
    double floor = w->low[r->from];
    double tolerance = fmax(fmax(3 * w->sigma, 0.005 * floor), fmin(0.1 * r->rise, 0.01 * floor));
    double level = 0, past = w->past_level;
    size_t from = r->from, j = from;
    struct fit_line pre;
    if (from)
        past = fmax(past, view_held_level(w->x, w->y, from, w->now - w->x[0]));
    r->above_past = past > -HUGE_VAL ? w->y[w->n - 1] - past : r->rise;
    r->before = BEFORE_NOTHING;
    if (from < 2 || r->onset - w->start < 0.1 * r->span)
        return;
    /* Find the stretch before the onset in which the baseline stays within the tolerance. */
    level = w->low[from - 1];
    while (j > 0 && fabs(w->low[j - 1] - level) <= tolerance)
        j--;
    r->flat_before = r->onset - w->x[j < from ? j : from];
    r->flat_slots = from - j;
    j = 0;
    while (j + 3 < from && w->x[j] < r->onset - r->span)
        j++;
    pre = fit_sums_line(s, w->x, j, from);
    if (pre.slope > 1.3 * r->slope)
        r->before = BEFORE_STEEPER;
    else if (pre.slope < 0.25 * r->slope)
        r->before = BEFORE_FLAT;
    else
        r->before = BEFORE_GENTLER;
    if (r->before == BEFORE_STEEPER && r->flat_before * r->slope > 5 * tolerance)
        r->before = BEFORE_FLAT; /* the steep part was a start-up that ended long ago */
}

/* Returns true if a saturating curve fits as well as each alternative: a line, a power of time (if
 * POWER_MAY_LEAK), and a saturating curve plus a line. */
static bool may_end(const struct fit_separation *sep, bool power_may_leak)
{
    double other = power_may_leak ? fmin(sep->bic_line, sep->bic_power) : sep->bic_line;
    return sep->end_shape != FIT_NONE && sep->bic_end < other + 2 &&
           sep->bic_end < sep->bic_both + DECISIVE;
}

/* Returns the growth in the last sixth of the straight part, relative to its mean slope: about 1
 * while growth continues, 0 once it has stopped. */
static double freshness(const struct view *w, const struct shape *r)
{
    double end = w->x[w->n - 1], rise = w->low[w->n - 1] - w->low[r->from];
    return rise > 0 ? 6 * growth_since(w, end - (end - r->onset) / 6) / rise : 0;
}

/* Returns true if the points cannot decide between a saturating curve and a line, because they are
 * too few, or because memory grows in jumps. Growth in jumps is a random walk about its line: its
 * residuals are not independent, so any curve seems to fit. */
static bool few_points(const struct fit_separation *sep, bool chunky, double few, double margin)
{
    return (chunky || sep->n_eff < few) && sep->bic_end > sep->bic_line - (chunky ? 8 : margin);
}

/* Returns true if growth in jumps is slowing down. RATIO is the latest rate relative to the mean
 * rate. RISES is the effective number of jumps: with few jumps, RATIO varies by chance, so it
 * must be lower. */
static bool is_slowing(double ratio, double rises)
{
    return ratio < fmax(0.3, fmin(0.6, 1 - 1.5 * sqrt(3 / fmax(rises, 1))));
}

static void separate(const struct view *w, struct shape *r)
{
    double floor_rms = MODEL_TRUST * fmax(r->growth, 1) + 4096, lower;
    struct fit_separation part;
    fit_separate(w->x, w->low, w->n, floor_rms, &r->sep);
    r->may_end = may_end(&r->sep, true);
    r->is_power =
        r->sep.bic_power + DECISIVE < r->sep.bic_end && r->sep.bic_power < r->sep.bic_both + 2;
    lower = r->sep.both_slope - 3 * r->sep.both_slope_se;
    r->line_remains = r->sep.both_shape != FIT_NONE && lower > 0 &&
                      r->sep.both_slope * (w->x[w->n - 1] - w->x[0]) > r->material;
    r->needs_line = r->line_remains && r->sep.bic_both + DECISIVE < r->sep.bic_end;
    r->line_least = lower * (w->x[w->n - 1] - w->x[0]);
    if (few_points(&r->sep, r->chunky, N_EFF_FEW_ALL, 4) && r->straight)
        r->may_end = is_slowing(r->slope_ratio, r->rises);
    r->part_may_end = r->may_end;
    if (!r->straight || r->from == 0)
        return;
    fit_separate(w->x + r->from, w->low + r->from, w->n - r->from, MODEL_TRUST * r->rise + 4096,
                 &part);
    r->part_may_end = may_end(&part, false);
    if (few_points(&part, r->chunky, N_EFF_FEW, 2)) {
        double end = w->x[w->n - 1], part_rise = w->low[w->n - 1] - w->low[r->from];
        double third = growth_since(w, end - (end - r->onset) / 3);
        r->part_may_end = is_slowing(part_rise > 0 ? 3 * third / part_rise : 0, r->rises);
    }
}

/* Removes the largest jump of the baseline if it stands out from all other moves: a single jump is
 * not a leak, however large. Returns true if a jump was removed. */
static bool remove_jump(struct view *w, double part)
{
    double growth = w->low[w->n - 1] - w->low[0], top = 0, others;
    size_t at = 0;
    for (size_t i = 1; i < w->n; i++)
        if (w->low[i] - w->low[i - 1] > top) {
            top = w->low[i] - w->low[i - 1];
            at = i;
        }
    others = (growth - top) / fmax(1, (double)w->n - 2);
    if (at == 0 || top < part * growth || top < 6 * others || top < 4 * w->sigma)
        return false;
    /* The jump must be isolated, unlike the first moves of a steep curve. */
    if ((at > 1 && w->low[at - 1] - w->low[at - 2] > 0.25 * top) ||
        (at + 1 < w->n && w->low[at + 1] - w->low[at] > 0.25 * top))
        return false;
    for (size_t i = at; i < w->n; i++) {
        w->low[i] -= top;
        w->y[i] -= top;
    }
    return true;
}

void shape_of(const struct view *whole, double material_fraction, struct shape *r)
{
    struct view work, *w = &work;
    struct fit_sums s;
    double span;
    memset(r, 0, sizeof *r);
    if (whole->n == 0)
        return;
    work = *whole;
    r->floor_first = w->low[0];
    r->floor_last = w->low[w->n - 1];
    r->growth = r->floor_last - r->floor_first;
    r->material = fmax(material_fraction * r->floor_first, 4 * w->sigma);
    span = w->x[w->n - 1] - w->x[0];
    r->last_third = growth_since(w, w->x[w->n - 1] - span / 3);
    r->slope_ratio = r->growth > 0 ? 3 * r->last_third / r->growth : 0;
    if (w->n < 3)
        return;
    if (w->n >= 12 && remove_jump(w, 0.15)) {
        double rest;
        (void)remove_jump(w, 0.25);
        rest = w->low[w->n - 1] - w->low[0];
        r->rest_third = growth_since(w, w->x[w->n - 1] - span / 3);
        r->rising = rest > r->material && r->rest_third > 0.3 * r->material;
        r->slope_ratio = rest > 0 ? 3 * r->rest_third / rest : 0;
    } else {
        r->rising = r->growth > r->material && r->last_third > 0.3 * r->material;
    }
    if (!r->rising)
        return;
    fit_sums_build(&s, w->x, w->low, w->n);
    find_straight(w, &s, r);
    if (r->straight) {
        describe_before(w, &s, r);
        if (r->before == BEFORE_FLAT)
            sharpen_onset(w, &s, r);
        straight_significance(w, r);
    }
    separate(w, r);
    r->fresh = r->straight ? freshness(w, r) : 0;
}

/* Fits a line and then a level by least squares, for every position of the bend between them. */
bool shape_bend(const struct view *w, double *ret_x, double *ret_width)
{
    struct fit_sums s;
    double best = HUGE_VAL, total;
    size_t at = 0;
    if (w->n < 4)
        return false;
    fit_sums_build(&s, w->x, w->low, w->n);
    for (size_t k = 1; k + 1 < w->n; k++) {
        /* The level is the mean of the readings after the bend. The line before the bend need not
         * end at this level. */
        struct fit_line line = fit_sums_line(&s, w->x, 0, k);
        double m = (double)(w->n - k), mean = (s.sy[w->n] - s.sy[k]) / m;
        double rss = s.syy[w->n] - s.syy[k] - m * mean * mean;

        rss += line.rms * line.rms * (double)k;
        if (rss < best) {
            best = rss;
            at = k;
        }
    }
    total = w->low[w->n - 1] - w->low[0];
    if (at == 0 || !(total > 0))
        return false;
    *ret_x = 0.5 * (w->x[at - 1] + w->x[at]);
    *ret_width = w->x[at] - w->x[at - 1];
    return true;
}
