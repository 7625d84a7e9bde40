/* Tests whether growth bends at the end of the first epoch. */
#include "verdict/judging.h"

#include <math.h>

/* KNOT_BEFORE and KNOT_AFTER are the numbers of readings required before and after the end of the
 * epoch. */
enum { KNOT_AFTER = 2, KNOT_BEFORE = 6 };
static const double KNOT_SURE = 6; /* required difference of slopes in standard deviations */
/* If the slope after the epoch is below this fraction of the epoch's slope, growth has stopped. */
static const double KNOT_STOPS = 0.5;
/* The lower of the growth rates within and after the epoch must be at least this fraction of the
 * higher one. */
static const double KNOT_PACE = 0.8;
/* The growth rate of the latest readings must be at least this fraction of the epoch's growth
 * rate. */
static const double KNOT_LATE = 0.7;
/* The time of the latest readings, as a fraction of the time since the end of the epoch. */
static const double KNOT_LAST = 0.35;
/* Fraction of the epoch's readings that is skipped as start-up. */
static const double KNOT_SKIPPED = 0.25;
/* Largest root mean square of the residuals, as a fraction of the rise. If the residuals are
 * larger, a cache may be filling in jumps. */
static const double KNOT_ROUGHNESS = 0.04;
static const double KNOT_PART = 0.9; /* the straight part must cover this fraction of the window */
/* Growth is tested once this fraction of a second epoch has passed. */
static const double KNOT_BEYOND = 0.15;

/* Two lines that meet at the end of the first epoch (the knot), fitted to all readings together. */
struct knot {
    double before, after; /* slopes before and after the knot */
    double se;            /* standard error of AFTER - KNOT_STOPS * BEFORE */
};

/* Sums over the readings. D is the distance of a reading from the knot, U = min(D, 0) and V =
 * max(D, 0). */
struct knot_sums {
    double n, u, v, uu, vv, y, uy, vy, yy;
};

static struct knot_sums sums_of(const struct view *w, size_t from, double at)
{
    struct knot_sums s = {0};
    for (size_t i = from; i < w->n; i++) {
        double u = fmin(w->x[i] - at, 0), v = fmax(w->x[i] - at, 0), y = w->low[i] - w->low[from];
        s.n++;
        s.u += u;
        s.v += v;
        s.uu += u * u;
        s.vv += v * v;
        s.y += y;
        s.uy += u * y;
        s.vy += v * y;
        s.yy += y * y;
    }
    return s;
}

/* Fits y = level + before U + after V by least squares. Either U or V is 0 for every reading, so
 * each slope can be computed from the level alone. Returns false if the readings do not determine
 * the slopes. */
static bool knot_fit(const struct view *w, size_t from, double at, double n_eff, struct knot *ret)
{
    struct knot_sums s = sums_of(w, from, at);
    double free, level, rss, variance, both;
    if (!(s.uu > 0) || !(s.vv > 0) || s.n <= 3)
        return false;
    free = s.n - s.u * s.u / s.uu -
           s.v * s.v / s.vv; /* weight of the level once the slopes are eliminated */
    if (!(free > 1e-9))
        return false;
    level = (s.y - s.u * s.uy / s.uu - s.v * s.vy / s.vv) / free;
    ret->before = (s.uy - s.u * level) / s.uu;
    ret->after = (s.vy - s.v * level) / s.vv;
    rss = fmax(0, s.yy - level * s.y - ret->before * s.uy - ret->after * s.vy);
    variance = rss / (s.n - 3) * s.n / n_eff;
    /* effect of an error in the level on AFTER - KNOT_STOPS * BEFORE */
    both = s.v / s.vv - KNOT_STOPS * s.u / s.uu;
    ret->se = sqrt(variance * (1 / s.vv + KNOT_STOPS * KNOT_STOPS / s.uu + both * both / free));
    return true;
}

/* Returns true if the slope of the latest readings is at least KNOT_LATE times SLOPE. IN is the
 * index of the first reading after the knot. */
static bool slope_continues(const struct view *w, size_t in, double slope)
{
    double end = w->x[w->n - 1], part = KNOT_LAST * (end - w->x[in]);
    size_t i = w->n - 1;
    while (i > in && w->x[i - 1] >= end - part)
        i--;
    i -= i > in && i + 1 == w->n; /* a single reading has no slope, so two are used */
    return w->low[w->n - 1] - w->low[i] >= KNOT_LATE * slope * (end - w->x[i]);
}

bool judge_unbent(const struct judging *j)
{
    const struct shape *s = &j->s;
    const struct view *w = &j->w;
    struct knot k;
    size_t in = 0;
    while (in < w->n && w->x[in] <= j->epoch_end)
        in++;
    if (in < KNOT_BEFORE || w->n < in + KNOT_AFTER || judging_beyond_epoch(j) < KNOT_BEYOND ||
        s->before != BEFORE_NOTHING || s->may_end || s->chunky || !judge_is_rise(j) ||
        s->roughness > KNOT_ROUGHNESS || s->span < KNOT_PART * (w->x[w->n - 1] - w->x[0]))
        return false;
    if (!knot_fit(w, (size_t)(KNOT_SKIPPED * (double)in), j->epoch_end, s->n_eff, &k))
        return false;
    return k.before > 0 && k.after >= KNOT_PACE * k.before && k.after * KNOT_PACE <= k.before &&
           k.after - KNOT_STOPS * k.before >= KNOT_SURE * k.se && slope_continues(w, in, k.before);
}
