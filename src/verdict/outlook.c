/* Computes the rates, the time to the limit and the alarm after the word is decided. */
#include "verdict/judging.h"

#include <math.h>

#include "verdict/forecast.h"
#include "verdict/martingale.h"

/* A rate's interval extends this many standard deviations to either side. This is a 97 % interval,
 * a little wider than the intended 95 %. */
static const double RATE_Z = 2.2;

/* Sets the growth rate of a saw-tooth to the difference between whole epochs. Recent readings would
 * only give the slope of the last tooth. */
static void rates_of_epochs(struct judging *j)
{
    struct verdict_result *r = j->r;
    double sec = judging_seconds_per_step(j->v, j->rate_from), per_min = sec > 0 ? 60 / sec : 0;
    const struct verdict_interval *p = &j->epoch_rate;
    r->rate_bytes_per_step = *p;
    r->rate_bytes_per_min =
        (struct verdict_interval){sec > 0, p->value * per_min, p->low * per_min, p->high * per_min};
}

void outlook_rates(struct judging *j)
{
    struct verdict_result *r = j->r;
    if (j->epoch_rate.known) {
        rates_of_epochs(j);
        return;
    }
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
            from = judging_seconds_at_step(j->v, from);
        else if (by_step != j->w.by_step)
            from = -HUGE_VAL;
        view_build(&w, j->v, by_step, j->r->leak == VERDICT_LEAK_NO ? -HUGE_VAL : from, from);
        if (!by_step && j->w.by_step) /* readings after the last step are not part of training */
            while (w.n > 3 && w.x[w.n - 1] > j->v->last_step_s + j->v->by_time.width)
                w.n--;
        if (w.n < 3)
            continue;
        /* For level memory, use the slope of the baseline. For growing memory, use the slope of the
         * readings. */
        y = j->r->leak == VERDICT_LEAK_NO ? w.low : w.y;
        fit_sums_build(&sums, w.x, y, w.n);
        line = fit_sums_line(&sums, w.x, 0, w.n);
        if (!fit_theil_sen(w.x, y, w.n, fit_effective(w.n, fit_line_rho(w.x, y, w.n, &line)),
                           RATE_Z, &sen))
            continue;
        *rate = (struct verdict_interval){true, sen.slope * unit, sen.low * unit, sen.high * unit};
    }
    /* If growth is significant by step but not by minute, the rate per minute is dropped. */
    if (j->w.by_step && r->leak == VERDICT_LEAK_YES && r->rate_bytes_per_min.low <= 0)
        r->rate_bytes_per_min.known = false;
}

/* Inputs of the forecast, from the same part of the view as the rate. */
struct ground {
    double level;               /* value of the fitted line at the newest reading */
    double peak_mid, peak_high; /* typical and largest height of block maxima above the line */
    double diffusion;           /* variance of the baseline about the line, per unit of x */
};

static bool find_ground(const struct judging *j, double slope, struct ground *g)
{
    enum { PIECES = 12 };
    const struct view *w = &j->w;
    double above[FIT_MAX], mid[FIT_MAX], piece = 0;
    /* The highest reading of a block may occur up to one block width after its lowest reading. */
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

/* Widens the forecast for growth that follows a power of time, because such growth reaches the
 * limit earlier or later than the present rate predicts. */
static void bend_eta(const struct judging *j, double room, double unit_per_x,
                     struct forecast_oom *oom)
{
    const struct fit_separation *sep = &j->s.sep;
    double grown = j->s.growth, spent = (j->w.now - j->w.x[0]) * unit_per_x, eta;
    if (j->r->word != VERDICT_LEAKING || sep->bic_power + 6 > sep->bic_line || !(grown > 0) ||
        !(room > 0))
        return;
    eta = spent * (pow((grown + room) / grown, 1 / sep->power_param) - 1);
    oom->low = fmin(oom->low, 0.85 * eta);
    oom->high = fmax(oom->high, 1.15 * eta);
}

/* Forecasts the time to the limit in seconds or steps. RATE / PER is the growth per second or step:
 * PER is 60 if RATE is per minute, and 1 if it is per step. UNIT_PER_X converts the view's x to the
 * unit of the result: it is the duration of a step if x is in steps and the result in seconds, and
 * 1 if both have the same unit. The interval of the result covers at least the headroom divided by
 * the bounds of RATE, because users see both intervals side by side. */
static struct forecast_oom passage_at(const struct judging *j, const struct ground *g,
                                      const struct verdict_interval *rate, double per,
                                      double unit_per_x)
{
    double room = (double)j->limit->limit_bytes - (double)j->limit->other_bytes - g->level;
    double se = (rate->high - rate->low) / per / (2 * RATE_Z);
    double diffusion = (j->s.n_eff < 12 ? 1 : 0.15) * g->diffusion / unit_per_x;
    struct forecast_oom oom = forecast_first_passage(room, rate->value / per, se, diffusion,
                                                     g->peak_mid, g->peak_high, j->w.sigma);
    bend_eta(j, room - g->peak_mid, unit_per_x, &oom);
    oom.low = fmin(oom.low, fmax(0, room - g->peak_mid) / (rate->high / per));
    if (rate->low > 0)
        oom.high = fmax(oom.high, fmax(0, room - g->peak_mid) / (rate->low / per));
    return oom;
}

/* Sets the time to the limit. The kernel kills a job at a peak, not at the baseline. Seconds follow
 * from the rate by time, and steps from the rate by step, because step duration varies. */
void outlook_oom(struct judging *j)
{
    struct verdict_result *r = j->r;
    const struct view *w = &j->w;
    const struct verdict_interval *by_min = &r->rate_bytes_per_min,
                                  *by_step = &r->rate_bytes_per_step;
    const struct verdict_interval *own = w->by_step ? by_step : by_min;
    double pace = w->by_step ? judging_seconds_per_step(j->v, j->rate_from) : 1;
    struct forecast_oom oom, oom_s;
    struct ground g;
    if (!j->limit || !j->limit->known || !own->known || !(own->value > 0) ||
        r->leak == VERDICT_LEAK_NO || !find_ground(j, own->value / (w->by_step ? 1 : 60), &g))
        return;
    oom = passage_at(j, &g, own, w->by_step ? 1 : 60, 1);
    oom_s = oom;
    if (w->by_step && pace > 0) {
        oom_s.low *= pace;
        oom_s.high *= pace;
        if (by_min->known && by_min->value > 0)
            oom_s = passage_at(j, &g, by_min, 60, pace);
    }
    r->oom.known = true;
    r->oom.limit_bytes = (double)j->limit->limit_bytes;
    if (w->by_step) {
        r->oom.has_step = true;
        r->oom.eta_step_low = oom.low;
        r->oom.eta_step_high = oom.high;
    }
    if (pace > 0) {
        r->oom.has_t = true;
        r->oom.eta_s_low = oom_s.low;
        r->oom.eta_s_high = oom_s.high;
    }
    judging_add_evidence(r, VERDICT_SAID_PEAK_OOM, g.peak_high, pace > 0 ? oom_s.low : oom.low,
                         pace > 0 ? oom_s.high : oom.high, !(pace > 0));
}

/* The test uses all blocks since the judged phase began. It must not use only the window in which
 * the shape was found: this window was chosen because of its data, so false alarms would be more
 * likely than alpha. */
void outlook_alarm(struct judging *j)
{
    const struct envelope *e = j->w.by_step ? &j->v->by_step : &j->v->by_time;
    double threshold = martingale_log_threshold(j->v->options.alpha, e->level, j->phase);
    double from = j->phase ? j->epoch_end : j->history, y[ENVELOPE_SLOTS];
    size_t n = 0, count = e->count;
    if (count && !envelope_last_is_ripe(e, j->w.now))
        count--;
    for (size_t i = 0; i < count; i++)
        if (e->slot[i].x >= from)
            y[n++] = e->slot[i].y;
    j->r->log_wealth = martingale_log_wealth(y, n);
    if (j->by_end)
        return;
    j->r->alarm = j->r->leak == VERDICT_LEAK_YES && j->r->log_wealth >= threshold;
    if (j->r->leak == VERDICT_LEAK_YES)
        judging_add_evidence(j->r, VERDICT_SAID_MARTINGALE, j->r->log_wealth, threshold, 0, 0);
}
