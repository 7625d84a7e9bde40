/* Computes the trend of a window of the envelope. */
#include "verdict/trend.h"

#include <math.h>
#include <string.h>

#include "verdict/events.h"
#include "verdict/judging.h"

enum { SLOTS_AT_LEAST = 6 };
/* Lower bound on the residual of a fitted curve: TRUST times the growth plus RESOLUTION times the
 * baseline. */
static const double TRUST = 0.005;
static const double RESOLUTION = 1e-4;
/* Upper bound on log evidence; at this value, the evidence is practically certain. */
static const double EVIDENCE_MOST = 30;

/* Returns the growth rate in the last PART of the window relative to the mean growth rate. */
static double late_pace(const struct view *w, double part, double growth)
{
    double end = w->x[w->n - 1], span = end - w->x[0];
    return growth > 0 ? (w->low[w->n - 1] - view_low_at(w, end - part * span)) / (part * growth)
                      : 0;
}

/* Returns the growth to be expected from a curve in the next window of the same length, if it grew
 * by GROWTH in this window. */
static double curve_next(enum fit_shape shape, double param, double growth)
{
    switch (shape) {
    case FIT_EXP:
        return growth * (exp(-1 / param) - exp(-2 / param)) / -expm1(-1 / param);
    case FIT_LOG:
        return growth * (log1p(2 / param) / log1p(1 / param) - 1);
    case FIT_POWER:
        return growth * (pow(2, param) - 1);
    case FIT_NONE:
    case FIT_RAMP:
    case FIT_STEP:
        break;
    }
    return 0;
}

/* Computes the evidence for each family of curves, and averages their forecasts, weighted by this
 * evidence. */
static void weigh_shapes(const struct view *w, struct trend *r)
{
    struct fit_separation sep;
    struct fit_sums sums;
    enum { FLAT, END, LINE, POWER, BOTH, SHAPES };
    double span = w->x[w->n - 1] - w->x[0], growth = fmax(0, r->growth);
    double next[SHAPES] = {0}, weight[SHAPES], least = HUGE_VAL, all = 0;
    fit_separate(w->x, w->low, w->n, TRUST * growth + RESOLUTION * r->base + 1, &sep);
    fit_sums_build(&sums, w->x, w->low, w->n);
    double from_line = fmin(growth, fmax(0, sep.both_slope * span));
    next[END] = curve_next(sep.end_shape, sep.end_param, growth);
    next[LINE] = fmax(0, fit_sums_line(&sums, w->x, 0, w->n).slope) * span;
    next[POWER] = curve_next(FIT_POWER, sep.power_param, growth);
    next[BOTH] = from_line + curve_next(sep.both_shape, sep.both_param, growth - from_line);
    double bic[SHAPES] = {sep.bic_flat, sep.bic_end, sep.bic_line, sep.bic_power, sep.bic_both};
    for (size_t i = 0; i < SHAPES; i++)
        least = fmin(least, bic[i]);
    for (size_t i = 0; i < SHAPES; i++)
        all += weight[i] = exp(-(bic[i] - least) / 2);
    for (size_t i = 0; i < SHAPES; i++)
        r->forecast += weight[i] / all * next[i];
    double best_end = fmin(sep.bic_flat, sep.bic_end);
    double best_on =
        fmin(sep.bic_line, fmin(sep.bic_power, sep.both_slope > 0 ? sep.bic_both : HUGE_VAL));
    r->lasting = fmin(EVIDENCE_MOST, fmax(-EVIDENCE_MOST, (best_end - best_on) / 2));
}

static double lead_over_even(const struct view *w, double growth)
{
    double span = w->x[w->n - 1] - w->x[0], ahead = 0;
    for (size_t i = 0; growth > 0 && i < w->n; i++)
        ahead = fmax(ahead, (w->low[i] - w->low[0]) / growth - (w->x[i] - w->x[0]) / span);
    return ahead;
}

static void measure_trend(const struct view *w, struct trend *r)
{
    struct fit_sums sums;
    double moves = 0;
    r->slots = (double)w->n;
    r->known = w->n >= SLOTS_AT_LEAST && w->x[w->n - 1] > w->x[0];
    if (!r->known)
        return;
    r->by_step = w->by_step;
    r->seconds = (w->x[w->n - 1] - w->x[0]) * w->seconds_per_x;
    r->base = w->low[0];
    r->growth = w->low[w->n - 1] - w->low[0];
    r->third = late_pace(w, 1. / 3, r->growth);
    r->sixth = late_pace(w, 1. / 6, r->growth);
    fit_sums_build(&sums, w->x, w->low, w->n);
    r->rough = r->growth > 0 ? fmin(1, fit_sums_line(&sums, w->x, 0, w->n).rms / r->growth) : 1;
    for (size_t i = 1; i < w->n; i++)
        moves += fabs(w->y[i] - w->y[i - 1]);
    r->net = moves > 0 ? fmax(0, r->growth) / moves : 0;
    r->fallen = r->growth > 0 ? fmin(5, w->largest_fall / r->growth) : 5;
    r->ahead = lead_over_even(w, r->growth);
    r->pace = 1;
    weigh_shapes(w, r);
}

/* Compares growth before and after END, the end of the first epoch. */
static void measure_epoch(const struct view *w, double start, double end, struct trend *r)
{
    double last = w->x[w->n - 1], epoch = end - start;
    if (!r->known || !(epoch > 0))
        return;
    r->epochs = fmax(0, w->now - start) / epoch;
    /* Leaves out the jump at the start of training. */
    double from = fmax(w->x[0], start + epoch / 4);
    double within = (view_low_at(w, end) - view_low_at(w, from)) / fmax(end - from, 1e-9);
    double after = (w->low[w->n - 1] - view_low_at(w, end)) / fmax(last - end, 1e-9);
    if (last > end && from < end)
        r->pace = within > 0 ? fmin(3, after / within) : after > 0 ? 3 : 0;
}

void trend_of_points(const double *x, const double *y, size_t n, double epoch, struct trend *ret)
{
    struct view w = {.seconds_per_x = 1};
    double high = -HUGE_VAL, low = HUGE_VAL;
    memset(ret, 0, sizeof *ret);
    w.n = n < FIT_MAX ? n : FIT_MAX;
    if (w.n == 0)
        return;
    memcpy(w.x, x, w.n * sizeof *x);
    memcpy(w.y, y, w.n * sizeof *y);
    for (size_t i = w.n; i-- > 0;)
        w.low[i] = low = fmin(low, y[i]);
    for (size_t i = 0; i < w.n; i++) {
        high = fmax(high, y[i]);
        w.largest_fall = fmax(w.largest_fall, high - y[i]);
    }
    w.now = x[w.n - 1];
    w.sigma = fit_noise(w.x, w.y, w.n);
    view_trim_startup(&w);
    measure_trend(&w, ret);
    measure_epoch(&w, x[0], x[0] + epoch, ret);
}

void trend_of(const struct verdict_series *v, struct trend *ret)
{
    bool by_step = judging_use_steps(v);
    double history = !by_step && v->has_begin ? v->begin_s : -HUGE_VAL;
    struct events_steps steps;
    struct view w;
    memset(ret, 0, sizeof *ret);
    view_build(&w, v, by_step, history, history);
    double began = w.start;
    if (!v->step_only)
        view_trim_startup(&w);
    measure_trend(&w, ret);
    if (!ret->known)
        return;
    if (by_step && v->steps_per_epoch)
        measure_epoch(&w, v->begin_step, v->begin_step + (double)v->steps_per_epoch, ret);
    else if (v->has_first_epoch)
        measure_epoch(&w, by_step ? v->begin_step : began,
                      by_step ? v->first_epoch_step : v->first_epoch_s, ret);
    if (by_step && ret->growth > 0 && events_find_steps(v, w.sigma, 0, &steps))
        ret->events = fmin(1, steps.share * steps.total_bytes / ret->growth);
}
