/* Judges a baseline that has stopped growing (stable, spiking or plateaued), and finds the end of
 * its growth. */
#include "verdict/judging.h"

#include <math.h>

/* If the baseline grows by more than this fraction of itself, it is not flat, even if noise hides
 * the shape of the growth. */
static const double TOO_MUCH = 0.1;

/* Stores where growth ended, given that it ended near X, and returns the position. This is the end
 * of the first epoch if it is at most TOLERANCE away, or else another event that is at most NEAR
 * away, or else X itself. */
static double ended_at_boundary(struct judging *j, double x, double tolerance, double near)
{
    struct verdict_result *r = j->r;
    const struct verdict_series *v = j->v;
    double best = tolerance, at;
    r->growth_ended.at = VERDICT_AT_NONE;
    r->growth_ended.known = true;
    at = x;
    if (j->has_epoch_end && fabs(j->epoch_end - x) <= best) {
        best = fabs(j->epoch_end - x);
        r->growth_ended.at = VERDICT_AT_FIRST_EPOCH;
        at = j->epoch_end;
    }
    for (uint32_t i = 0; i < v->n_events; i++) {
        const struct verdict_event *e = &v->events[i];
        double ex = j->w.by_step ? e->step : (double)e->t_s;
        if (r->growth_ended.at == VERDICT_AT_FIRST_EPOCH || fabs(ex - x) > fmin(best, near))
            continue;
        best = fabs(ex - x);
        at = ex;
        r->growth_ended.at = e->kind == VERDICT_MARK_EVAL   ? VERDICT_AT_EVAL
                             : e->kind == VERDICT_MARK_SAVE ? VERDICT_AT_SAVE
                                                            : VERDICT_AT_EPOCH;
    }
    if (r->growth_ended.at == VERDICT_AT_NONE && j->w.by_step)
        r->growth_ended.at = VERDICT_AT_STEP;
    if (j->w.by_step) {
        r->growth_ended.has_step = true;
        /* AT is rounded, so that the evidence sentence and the result contain the same step */
        at = round(at);
        r->growth_ended.step = judging_step(at);
        if (!v->step_only && j->w.seconds_per_x > 0) {
            r->growth_ended.has_t = true;
            r->growth_ended.t_s = judging_caller_seconds(v, judging_seconds_at_step(v, at));
        }
        if (r->growth_ended.at == VERDICT_AT_FIRST_EPOCH && v->has_first_epoch && !v->step_only)
            r->growth_ended.t_s = judging_caller_seconds(v, v->first_epoch_s);
    } else {
        r->growth_ended.has_t = true;
        r->growth_ended.t_s = judging_caller_seconds(v, at);
    }
    return at;
}

/* Sets the verdict for growth that occurred only in the first steps. */
static void filled_early(struct judging *j, double cap)
{
    double near = j->fill_end - j->began;
    j->r->floor_first_bytes -= j->fill;
    judging_add_evidence(j->r, VERDICT_SAID_ENDED,
                         ended_at_boundary(j, j->fill_end, 0, 0.12 * near), j->w.by_step,
                         j->r->growth_ended.at, j->fill);
    judging_conclude(j, VERDICT_PLATEAUED, cap);
}

void judge_level(struct judging *j, double cap)
{
    const struct view *w = &j->w;
    const struct shape *s = &j->s;
    double span = w->x[w->n - 1] - w->x[0], peak = 0, bend, width, quiet = span / 3;
    unsigned spikes = 0;
    double spike = fmax(0.1 * s->floor_last, 6 * w->sigma);
    for (size_t i = 0; i < w->n; i++) {
        double up = w->y[i] + w->excess[i] - w->low[i];
        spikes += up > spike;
        peak = fmax(peak, up);
    }
    judging_add_evidence(j->r, VERDICT_SAID_BASELINE, s->floor_first, s->floor_last,
                         s->floor_first > 0 ? s->growth / s->floor_first : 0, 0);
    if (s->growth > s->material && shape_bend(w, &bend, &width)) {
        double ended_at =
            ended_at_boundary(j, bend, fmax(1.5 * width, 0.12 * (bend - w->start)), 1.5 * width);
        quiet = w->now - bend;
        judging_add_evidence(j->r, VERDICT_SAID_ENDED, ended_at, w->by_step, j->r->growth_ended.at,
                             s->growth);
        if (s->last_third > 0.001 * s->floor_last)
            judging_add_evidence(j->r, VERDICT_SAID_RESIDUAL,
                                 3 * s->last_third / span * (w->by_step ? 1 : 60), w->by_step,
                                 s->last_third, 0);
        judging_conclude(j, VERDICT_PLATEAUED,
                         fmin(cap, 1 - 0.5 * exp(-3 * quiet / fmax(bend - w->start, 1e-9))));
        j->rate_from = w->x[w->n - 1] - span / 3;
        return;
    }
    judging_add_evidence(j->r, VERDICT_SAID_FLAT, s->growth, span, w->by_step, 0);
    if (spikes >= 2 || (spikes && w->largest_fall > spike)) {
        judging_add_evidence(j->r, VERDICT_SAID_SPIKES, peak, spikes, 0, 0);
        judging_conclude(j, VERDICT_SPIKING, fmin(cap, 0.95));
    } else if (j->fill > 0) {
        filled_early(j, cap);
    } else if (s->growth > TOO_MUCH * s->floor_first) {
        judging_add_evidence(j->r, VERDICT_SAID_NOISE, s->growth, w->sigma, 0, 0);
        judging_conclude(j, VERDICT_UNDECIDED, 0.5);
    } else {
        judging_conclude(j, VERDICT_STABLE, fmin(cap, 0.97));
    }
}
