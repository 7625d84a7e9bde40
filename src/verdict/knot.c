/* Tests whether growth bends at the end of the first epoch. */
#include "verdict/judging.h"

#include <math.h>

enum { KNOT_AFTER = 2, KNOT_BEFORE = 6 }; /* readings required on either side */
static const double KNOT_SURE = 6; /* standard deviations, as for the significance of a slope */
/* Fraction of the epoch's slope: a fill that continues more slowly has stopped. */
static const double KNOT_STOPS = 0.5;
/* Growth rate after the epoch over the rate within it, or the inverse. */
static const double KNOT_PACE = 0.8;
static const double KNOT_LATE = 0.7;     /* fraction of the epoch's growth rate required in the last
                                            part of the readings after it … */
static const double KNOT_LAST = 0.35;    /* … which is this fraction of them */
static const double KNOT_SKIPPED = 0.25; /* fraction of the epoch's readings skipped as start-up */
/* Root mean square over rise: rougher growth may be a cache filling in steps. */
static const double KNOT_ROUGHNESS = 0.04;
static const double KNOT_PART = 0.9;    /* fraction of the window that one rise must cover */
static const double KNOT_BEYOND = 0.15; /* fraction of an epoch that must have followed */

/* Two lines that meet at the knot, fitted to all readings together. */
struct knot {
    double before, after; /* slopes */
    double se;            /* standard error of AFTER - KNOT_STOPS * BEFORE */
};

/* Sums over the readings, where D is the distance from the knot, U = min(D, 0) and V = max(D,
 * 0). */
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

/* Least squares of y = level + before U + after V. U V is 0 everywhere, so the level determines
 * both slopes. False: the readings do not determine them. */
static bool knot_fit(const struct view *w, size_t from, double at, double n_eff, struct knot *ret)
{
    struct knot_sums s = sums_of(w, from, at);
    double free, level, rss, variance, both;
    if (!(s.uu > 0) || !(s.vv > 0) || s.n <= 3)
        return false;
    free = s.n - s.u * s.u / s.uu -
           s.v * s.v / s.vv; /* weight of the level after elimination of the slopes */
    if (!(free > 1e-9))
        return false;
    level = (s.y - s.u * s.uy / s.uu - s.v * s.vy / s.vv) / free;
    ret->before = (s.uy - s.u * level) / s.uu;
    ret->after = (s.vy - s.v * level) / s.vv;
    rss = fmax(0, s.yy - level * s.y - ret->before * s.uy - ret->after * s.vy);
    variance = rss / (s.n - 3) * s.n / n_eff;
    both = s.v / s.vv - KNOT_STOPS * s.u / s.uu; /* effect of the level's error on both slopes */
    ret->se = sqrt(variance * (1 / s.vv + KNOT_STOPS * KNOT_STOPS / s.uu + both * both / free));
    return true;
}

/* Does the last part of the readings after the knot, from index IN on, still have most of SLOPE? */
static bool slope_continues(const struct view *w, size_t in, double slope)
{
    double end = w->x[w->n - 1], part = KNOT_LAST * (end - w->x[in]);
    size_t i = w->n - 1;
    while (i > in && w->x[i - 1] >= end - part)
        i--;
    i -= i > in && i + 1 == w->n; /* one reading has no slope: use two */
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
