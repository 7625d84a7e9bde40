/* Rates, time to the limit and the live alarm, once the word stands. */
#include "verdict/judging.h"

#include <math.h>

#include "verdict/forecast.h"
#include "verdict/martingale.h"

static const double RATE_Z = 2.2; /* nominal 97 %: wider than the 95 % that is meant */

void outlook_rates(struct judging *j)
{
    struct verdict_result *r = j->r;

    for (int by_step = 0; by_step < 2; by_step++) {
        struct verdict_interval *rate = by_step ? &r->rate_bytes_per_step : &r->rate_bytes_per_min;
        double from = j->rate_from, unit = by_step ? 1 : 60;
        struct fit_sums sums;
        struct fit_line line;
        struct fit_sen sen;
        struct view w;
        const double *y;

        if (by_step ? !j->v->has_step : j->v->step_only)
            continue;
        if (by_step != j->w.by_step && j->w.seconds_per_x > 0 && j->w.by_step)
            from = j->v->first_step_s + (from - j->v->first_step) * j->w.seconds_per_x;
        else if (by_step != j->w.by_step)
            from = -HUGE_VAL;
        view_build(&w, j->v, by_step, j->r->leak == VERDICT_LEAK_NO ? -HUGE_VAL : from, from);
        if (w.n < 3)
            continue;
        /* Of a level, the slope of the low tide; of a rise, that of the readings. */
        y = j->r->leak == VERDICT_LEAK_NO ? w.low : w.y;
        fit_sums_build(&sums, w.x, y, w.n);
        line = fit_sums_line(&sums, w.x, 0, w.n);
        if (!fit_theil_sen(w.x, y, w.n, fit_effective(w.n, fit_line_rho(w.x, y, w.n, &line)),
                           RATE_Z, &sen))
            continue;
        *rate = (struct verdict_interval){true, sen.slope * unit, sen.low * unit, sen.high * unit};
    }
}

/* What the forecast needs of the part of the view from which the rate is taken. */
struct ground {
    double level;               /* of the line now */
    double peak_mid, peak_high; /* readings above the line: usual and highest of a block */
    double diffusion;           /* variance of the floor about the line, per x */
};

static bool find_ground(const struct judging *j, double slope, struct ground *g)
{
    enum { PIECES = 12 };
    const struct view *w = &j->w;
    double above[FIT_MAX], mid[FIT_MAX], piece = 0;
    /* A block's highest reading comes up to a block after its lowest. */
    double width = w->by_step ? j->v->by_step.width : j->v->by_time.width;
    size_t from = 0, m, last;

    while (from + 1 < w->n && w->x[from] < j->rate_from)
        from++;
    m = w->n - from;
    if (m < 3)
        return false;
    for (size_t i = 0; i < m; i++)
        mid[i] = w->y[from + i] + slope * (w->now - w->x[from + i]);
    g->level = fit_median(mid, m);
    g->peak_high = 0;
    for (size_t i = 0; i < m; i++) {
        above[i] = w->y[from + i] + w->excess[from + i] - slope * width -
                   (g->level - slope * (w->now - w->x[from + i]));
        g->peak_high = fmax(g->peak_high, above[i]);
    }
    g->peak_mid = fmax(0, fit_select(above, m, (size_t)(0.7 * (double)(m - 1))));
    g->diffusion = 0;
    last = from;
    for (size_t k = 1; k <= PIECES; k++) {
        size_t at = from + k * (m - 1) / PIECES;
        double d = w->low[at] - w->low[last] - slope * (w->x[at] - w->x[last]);

        piece += d * d;
        last = at;
    }
    if (w->x[last] > w->x[from])
        g->diffusion = piece / (w->x[last] - w->x[from]);
    return true;
}

/* Growth as a power of time reaches ROOM more slowly or faster than its present rate says. */
static void bend_eta(const struct judging *j, double room, struct forecast_oom *oom)
{
    const struct fit_separation *sep = &j->s.sep;
    double grown = j->s.growth, spent = j->w.now - j->w.x[0], eta;

    if (j->r->word != VERDICT_LEAKING || sep->bic_power + 6 > sep->bic_line || !(grown > 0) ||
        !(room > 0))
        return;
    eta = spent * (pow((grown + room) / grown, 1 / sep->power_param) - 1);
    oom->low = fmin(oom->low, 0.85 * eta);
    oom->high = fmax(oom->high, 1.15 * eta);
}

/* Time to the limit: the peak is killed, not the floor. */
void outlook_oom(struct judging *j)
{
    struct verdict_result *r = j->r;
    const struct view *w = &j->w;
    const struct verdict_interval *rate =
        w->by_step ? &r->rate_bytes_per_step : &r->rate_bytes_per_min;
    double room, slope, se, unit = w->by_step ? 1 : 60;
    struct forecast_oom oom;
    struct ground g;

    if (!j->limit || !j->limit->known || !rate->known || !(rate->value > 0) ||
        (r->leak == VERDICT_LEAK_NO))
        return;
    slope = rate->value / unit;
    se = (rate->high - rate->low) / unit / (2 * RATE_Z);
    if (!find_ground(j, slope, &g))
        return;
    room = (double)j->limit->limit_bytes - (double)j->limit->other_bytes - g.level;
    oom = forecast_first_passage(room, slope, se, (j->s.n_eff < 12 ? 1 : 0.15) * g.diffusion,
                                 g.peak_mid, g.peak_high, w->sigma);
    bend_eta(j, room - g.peak_mid, &oom);
    r->oom.known = true;
    r->oom.limit_bytes = (double)j->limit->limit_bytes;
    if (w->by_step) {
        r->oom.has_step = true;
        r->oom.eta_step_low = oom.low;
        r->oom.eta_step_high = oom.high;
    }
    if (w->seconds_per_x > 0) {
        r->oom.has_t = true;
        r->oom.eta_s_low = oom.low * w->seconds_per_x;
        r->oom.eta_s_high = oom.high * w->seconds_per_x;
    }
    judging_say(r, VERDICT_SAID_PEAK_OOM, g.peak_high,
                w->seconds_per_x > 0 ? r->oom.eta_s_low : oom.low,
                w->seconds_per_x > 0 ? r->oom.eta_s_high : oom.high, !(w->seconds_per_x > 0));
}

/* The test looks at every block since its phase began, whatever the shape's window was cut to: a
 * window chosen by the data would void its guarantee. */
void outlook_alarm(struct judging *j)
{
    const struct envelope *e = j->w.by_step ? &j->v->by_step : &j->v->by_time;
    double threshold = martingale_log_threshold(j->v->options.alpha, e->level, j->phase);
    double from = j->phase ? j->pass_end : j->history, y[ENVELOPE_SLOTS];
    size_t n = 0, count = e->count;

    if (count && !envelope_last_is_ripe(e, j->w.now))
        count--;
    for (size_t i = 0; i < count; i++)
        if (e->slot[i].x >= from)
            y[n++] = e->slot[i].y;
    j->r->log_wealth = martingale_log_wealth(y, n);
    j->r->alarm = j->r->leak == VERDICT_LEAK_YES && j->r->log_wealth >= threshold;
    if (j->r->leak == VERDICT_LEAK_YES)
        judging_say(j->r, VERDICT_SAID_MARTINGALE, j->r->log_wealth, threshold, 0, 0);
}
