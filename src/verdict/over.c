/* Judges growth of a job that is over: no later sample will distinguish the first epoch from a
 * leak. */
#include "verdict/judging.h"

#include <math.h>

/* Shortest duration of growth, in seconds, that can be judged. */
static const double AT_LEAST_S = 15;
/* Fraction of the job's life, including start-up, that the growth must cover. */
static const double LIFE_PART = 0.55;
/* Fraction of the time after start-up that one rise must cover. */
static const double WHOLE_PART = 0.9;
/* The slope of the last third of the rise must be at least this fraction of the mean slope. */
static const double PACE = 0.7;
/* Smallest slope of the later half, as a fraction of the earlier half's slope. */
static const double EVEN_LATE = 0.85;
/* Replaces EVEN_LATE if no bend is visible, because growth in random jumps is never perfectly
 * steady. */
static const double EVEN_CHANCE = 0.7;
/* Smallest slope of the earlier half, as a fraction of the later half's slope; a leak may
 * accelerate. */
static const double EVEN_EARLY = 0.7;
/* Smallest effective number of jumps in the growth (RISES in shape.h); fewer jumps prove
 * nothing. */
static const double STEPS = 8;
/* Highest confidence, since a first epoch as long as the job cannot be excluded. */
static const double CONFIDENCE = 0.65;
/* A level stretch at the end may be part of the exit if it is at most this many seconds long. */
static const double EXIT_S = 5;
/* Smallest fraction of the window that the rise before an exit must cover. */
static const double EXIT_RAMP = 0.9;
/* The part before a rise is start-up if it is at least this many times as steep as the rise. */
static const double STARTUP_SLOPE = 1.5;
/* The part before a rise is also start-up if it is at most this many times as steep as the rise. */
static const double STARTUP_GENTLER = 0.5;
/* This much time before the rise is compared with the rise, as a fraction of the job's life. */
static const double STARTUP_PART = 0.1;
/* Lengths of start-up that are tried, as fractions of the job's life. In a short job, start-up is a
 * large fraction, because it takes seconds in any job. */
static const double STARTUPS[] = {0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5};
enum { POINTS = 12 };

/* Returns true if the earlier and the later half grow about equally fast. Unlike shape_of, this
 * includes isolated jumps, so that a large jump at start-up or at the end makes the halves
 * differ. */
static bool is_even(const struct view *w, const struct shape *s)
{
    size_t half = w->n / 2;
    struct fit_sums sums;
    double early, late, part = s->sep.bic_line < s->sep.bic_power ? EVEN_CHANCE : EVEN_LATE;
    fit_sums_build(&sums, w->x, w->low, w->n);
    early = fit_sums_line(&sums, w->x, 0, half + 1).slope;
    late = fit_sums_line(&sums, w->x, half, w->n).slope;
    return late >= part * early && early >= EVEN_EARLY * late;
}

/* Returns true if growth stopped only during the exit, and thus lasted to the end of the job. */
static bool ended_during_exit(const struct judging *k)
{
    const struct fit_separation *sep = &k->s.sep;
    double span = k->w.x[k->w.n - 1] - k->w.x[0];
    return !k->w.by_step && sep->end_shape == FIT_RAMP && sep->end_param >= EXIT_RAMP &&
           (1 - sep->end_param) * span <= EXIT_S;
}

/* Returns true if K's whole window is one rise up to its end. */
static bool is_one_rise(const struct judging *k, double life)
{
    const struct shape *s = &k->s;
    const struct view *w = &k->w;
    double sec = w->seconds_per_x > 0 ? w->seconds_per_x : 0;
    return judge_is_rise(k) && s->rises >= STEPS && s->before == BEFORE_NOTHING &&
           s->span >= WHOLE_PART * (w->x[w->n - 1] - w->x[0]) && s->span * sec >= AT_LEAST_S &&
           s->span >= LIFE_PART * life && s->slope_ratio >= PACE && is_even(w, s) &&
           (!s->may_end || ended_during_exit(k));
}

/* Returns true if the part just before K's window was start-up: clearly steeper than the window, or
 * much gentler. If growth is a smooth curve, its slope differs little between the two, and the
 * result is false. In a view by step, a gentler part does not count, because imports come before
 * the first step. */
static bool follows_startup(const struct judging *j, const struct judging *k, double life)
{
    const struct view *w = &j->w;
    double from = k->w.x[0] - STARTUP_PART * life, first = HUGE_VAL, last = 0, at = 0, begun = 0;
    for (size_t i = 0; i < w->n && w->x[i] <= k->w.x[0]; i++) {
        if (w->x[i] < from)
            continue;
        if (first == HUGE_VAL) {
            first = w->low[i];
            begun = w->x[i];
        }
        last = w->low[i];
        at = w->x[i];
    }
    if (!(at > begun))
        return false;
    double times = (last - first) / (k->s.slope * (at - begun));
    return (times <= STARTUP_GENTLER && !w->by_step) || times >= STARTUP_SLOPE;
}

bool judge_over(struct judging *j)
{
    double life = j->w.now - j->began;
    struct judging k = *j, all = *j;
    if (!j->v->is_over || j->v->step_only)
        return false;
    view_build(&all.w, j->v, j->w.by_step, j->history, j->history);
    for (size_t i = 0; i < sizeof STARTUPS / sizeof *STARTUPS; i++) {
        double from = STARTUPS[i] > 0 ? j->began + STARTUPS[i] * life : j->history;
        view_build(&k.w, j->v, j->w.by_step, j->history, from);
        if (k.w.n < POINTS || STARTUPS[i] + LIFE_PART > 1)
            return false;
        shape_of(&k.w, j->v->options.late_rise, &k.s);
        if (!is_one_rise(&k, life) || (i > 0 && !follows_startup(&all, &k, life)))
            continue;
        judging_add_evidence(j->r, VERDICT_SAID_OVER, j->v->has_step, 0, 0, 0);
        judge_leaking(&k, CONFIDENCE);
        j->rate_from = k.rate_from;
        j->by_end = true;
        return true;
    }
    return false;
}
