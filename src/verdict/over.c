/* A job that is over: no more will come that could tell a first pass from a leak. */
#include "verdict/judging.h"

#include <math.h>

static const double AT_LEAST_S = 15;   /* that the rise lasted */
static const double LIFE_PART = 0.55;  /* of the job's life, its start-up counted in */
static const double WHOLE_PART = 0.9;  /* of what follows the start-up: one rise and nothing else */
static const double PACE = 0.7;        /* of the mean slope, in the last third */
static const double EVEN_LATE = 0.85;  /* of the earlier half's slope, in the later */
static const double EVEN_CHANCE = 0.7; /* where no bend is seen: steps of chance are uneven */
static const double EVEN_EARLY = 0.7;  /* and the other way: a leak may get faster */
static const double STEPS = 8;         /* equal ones that it would take: few are no rule */
/* Of what a program holds: what is kept is seen in it alone, without what an allocator takes at
 * once and fills later, so that less of it and fewer steps are enough. */
static const double STEPS_HELD = 4.5;
static const double LIFE_HELD = 0.45;  /* of the job's life: that it began late is seen */
static const double RISE_HELD = 0.08;  /* of the floor */
static const double EVEN_HELD = 0.8;   /* a bend is not hidden by an allocator's jumps either */
static const double CONFIDENCE = 0.65; /* a first pass as long as the job cannot be excluded */
static const double EXIT_S = 5;        /* that a process may stand at its highest while it exits */
static const double EXIT_RAMP = 0.9;   /* and the part of the window before it at least */
static const double STARTUP_SLOPE = 1.5;   /* times that of the rise: what comes before it */
static const double STARTUP_HELD = 2;      /* where no allocator blurs it */
static const double STARTUP_GENTLER = 0.5; /* or at most so much: growth began where it ended */
static const double STARTUP_LOOK = 0.1;    /* of the life, just before the rise */
/* Start-ups take seconds however short the job is: these parts of its life are tried. */
static const double STARTUPS[] = {0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5};
enum { POINTS = 12 };

/* Does the later half rise as fast as the earlier? Jumps are counted, which the shape takes out:
 * one large one is of the start-up, or the end. */
static bool is_even(const struct view *w, const struct shape *s, bool is_held)
{
    size_t half = w->n / 2;
    struct fit_sums sums;
    double early, late, part = s->sep.bic_line < s->sep.bic_power ? EVEN_CHANCE : EVEN_LATE;
    if (is_held)
        part = EVEN_HELD;
    fit_sums_build(&sums, w->x, w->low, w->n);
    early = fit_sums_line(&sums, w->x, 0, half + 1).slope;
    late = fit_sums_line(&sums, w->x, half, w->n).slope;
    return late >= part * early && early >= EVEN_EARLY * late;
}

/* Growth that ended as shortly before the last reading as an exit may take did not end while the
 * job lived. */
static bool stood_while_exiting(const struct judging *k)
{
    const struct fit_separation *sep = &k->s.sep;
    double span = k->w.x[k->w.n - 1] - k->w.x[0];
    return !k->w.by_step && sep->end_shape == FIT_RAMP && sep->end_param >= EXIT_RAMP &&
           (1 - sep->end_param) * span <= EXIT_S;
}

static double life_part(const struct verdict_series *v)
{
    return v->options.is_held ? LIFE_HELD : LIFE_PART;
}

/* Is all of K's window one rise, up to its end? */
static bool lasted(const struct judging *k, double life)
{
    const struct shape *s = &k->s;
    const struct view *w = &k->w;
    double sec = w->seconds_per_x > 0 ? w->seconds_per_x : 0;
    double steps = k->v->options.is_held ? STEPS_HELD : STEPS;
    return judge_is_rise(k) && s->rises >= steps && s->before == BEFORE_NOTHING &&
           s->span >= WHOLE_PART * (w->x[w->n - 1] - w->x[0]) && s->span * sec >= AT_LEAST_S &&
           s->span >= life_part(k->v) * life && s->slope_ratio >= PACE &&
           is_even(w, s, k->v->options.is_held) && (!s->may_end || stood_while_exiting(k));
}

/* What is left out before K's window was a start-up if it was steeper up to there, or gentler by
 * much. A curve that bends is neither: wherever it is cut, it was a little steeper before. By steps
 * there is no gentler one: what is imported comes before the first. */
static bool follows_startup(const struct judging *j, const struct judging *k, double life)
{
    const struct view *w = &j->w;
    double from = k->w.x[0] - STARTUP_LOOK * life, first = HUGE_VAL, last = 0, at = 0, begun = 0;
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
    return (times <= STARTUP_GENTLER && !w->by_step) ||
           times >= (k->v->options.is_held ? STARTUP_HELD : STARTUP_SLOPE);
}

bool judge_over(struct judging *j)
{
    const struct verdict_options *o = &j->v->options;
    double life = j->w.now - j->began, part = o->is_held ? RISE_HELD : o->late_rise;
    struct judging k = *j, all = *j;
    if (!j->v->is_over || j->v->step_only)
        return false;
    view_build(&all.w, j->v, j->w.by_step, j->history, j->history);
    for (size_t i = 0; i < sizeof STARTUPS / sizeof *STARTUPS; i++) {
        double from = STARTUPS[i] > 0 ? j->began + STARTUPS[i] * life : j->history;
        view_build(&k.w, j->v, j->w.by_step, j->history, from);
        if (k.w.n < POINTS || STARTUPS[i] + life_part(j->v) > 1)
            return false;
        shape_of(&k.w, part, &k.s);
        if (!lasted(&k, life) || (i > 0 && !follows_startup(&all, &k, life)))
            continue;
        judging_say(j->r, VERDICT_SAID_OVER, j->v->has_step, 0, 0, 0);
        judge_leaking(&k, CONFIDENCE);
        j->rate_from = k.rate_from;
        j->by_end = true;
        return true;
    }
    return false;
}
