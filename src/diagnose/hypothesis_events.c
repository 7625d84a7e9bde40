/* Hypotheses about memory within a step, and at evaluations and checkpoints. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "diagnose/hypothesis_private.h"
#include "verdict/fit.h"

static const double spike_least_bytes = 8 << 20;
static const double spike_least_share = 0.05;
/* The growth of resident memory is retained free memory if the live heap grew by less than this
 * fraction of it. */
static const double free_share = 0.3;

static int64_t steps_between(const struct question *q)
{
    return q->f->has_steps ? q->f->last_step - q->f->first_step : 0;
}

/* ---- accumulation ---- */

/* Returns the median, over at most STEPS steps, of the memory that is used at the peak of a step
 * but not at its end. Returns NAN if there are too few readings. */
static double rise_in_step(const struct question *q)
{
    enum { STEPS = 256 };
    const struct facts *f = q->f;
    double rises[STEPS], last_s = (double)NAN;
    size_t n = 0;
    for (size_t i = 0; i < f->n_marks && n < STEPS; i++) {
        if (f->marks[i].kind != VERDICT_MARK_STEP)
            continue;
        double t_s = f->marks[i].t_s;
        double most =
            isnan(last_s) ? (double)NAN : facts_max(&f->main->field[SAMPLE_RSS], last_s, t_s);
        double end = main_at(q, SAMPLE_RSS, t_s);
        if (!isnan(most) && !isnan(end))
            rises[n++] = fmax(0, most - end);
        last_s = t_s;
    }
    return n < 8 ? (double)NAN : fit_median(rises, n);
}

void test_accumulation(const struct question *q, struct hypothesis *h)
{
    int64_t steps = steps_between(q);
    if (!q->f->has_steps || !q->f->main) {
        evidence_absent(h, "no marks: steps are unknown");
        return;
    }
    if (q->f->substeps == 0)
        evidence_absent(h, "no micro-batch marks: gradient accumulation is unknown");
    if (q->has_grown && q->growth > 0) {
        evidence_against(h, steps >= 8 ? DECIDES : FAIR,
                         "memory at the end of steps grew by %s in %" PRId64
                         " steps, but gradient accumulation frees its memory within each step",
                         SIZE(q->growth), steps);
        return;
    }
    double rise = rise_in_step(q), level = main_at(q, SAMPLE_RSS, q->f->now_s);
    if (isnan(rise)) {
        evidence_absent(h, "too few samples within steps");
    } else if (q->f->substeps > 0 && rise > spike_least_share * level) {
        h->share = fmin(1, rise / level);
        evidence_for(h, FAIR,
                     "memory grows by %s within a step and is freed by the end of the step",
                     SIZE(rise));
    } else {
        evidence_against(h, FAIR, "memory rises and falls by only %s within a step", SIZE(rise));
    }
}

/* ---- evaluations and checkpoints ---- */

struct events {
    size_t count, spikes, recovered;
    double jumps;   /* memory added at all events and not released */
    double highest; /* highest spike */
};

static double previous_step(const struct facts *f, size_t at)
{
    while (at-- > 0)
        if (f->marks[at].kind == VERDICT_MARK_STEP)
            return f->marks[at].t_s;
    return (double)NAN;
}

/* Returns the memory after an event at T_S: the lower of the first two readings. If training ended
 * before the first reading, returns the memory at the end of training. */
static double memory_after_event(const struct question *q, double t_s)
{
    const struct facts_series *rss = &q->f->main->field[SAMPLE_RSS];
    double least = (double)NAN;
    for (size_t i = 0, seen = 0; i < rss->count && rss->t_s[i] <= q->f->now_s && seen < 2; i++)
        if (rss->t_s[i] > t_s) {
            least = fmin(least, leakable_at(q, rss->t_s[i]));
            seen++;
        }
    return isnan(least) ? leakable_at(q, q->f->now_s) : least;
}

static void add_event(const struct question *q, size_t at, struct events *e)
{
    const struct facts *f = q->f;
    double from = previous_step(f, at), to = f->marks[at].t_s;
    double before = leakable_at(q, from), after = memory_after_event(q, to);
    double most = facts_max(&f->main->field[SAMPLE_RSS], from, to);
    if (isnan(from) || isnan(before) || isnan(after))
        return;
    double spike = isnan(most) ? 0 : most - main_at(q, SAMPLE_RSS, from);
    bool is_spike = spike > fmax(spike_least_bytes, spike_least_share * before);
    e->count++;
    e->jumps += after - before;
    e->spikes += is_spike;
    e->recovered += is_spike && after - before < spike / 4;
    e->highest = fmax(e->highest, spike);
}

/* An evaluation and a checkpoint between the same two steps are treated as one event. */
static struct events events_of(const struct question *q)
{
    struct events e = {0};
    double last_step = (double)NAN;
    for (size_t i = 0; q->f->main && i < q->f->n_marks; i++) {
        const struct facts_mark *m = &q->f->marks[i];
        if ((m->kind != VERDICT_MARK_EVAL && m->kind != VERDICT_MARK_SAVE) ||
            m->t_s < q->f->start_s || m->t_s > q->f->now_s)
            continue;
        double step = previous_step(q->f, i);
        if (step > last_step || isnan(last_step))
            add_event(q, i, &e);
        last_step = step;
    }
    return e;
}

/* Returns true if most of the growth occurs in the few steps with an evaluation or a checkpoint. */
static bool is_tied(const struct question *q, const struct events *e)
{
    double share = share_of(q, e->jumps), steps = (double)steps_between(q);
    double usual = steps > 0 ? (double)e->count / steps : 0;
    return share > 0.4 && share > 2 * usual && e->jumps < 1.5 * q->total;
}

/* Tests whether memory grows at events although nothing is kept alive, because the allocator
 * retains freed memory. */
static bool test_freed_at_events(const struct question *q, struct hypothesis *h,
                                 const struct events *e)
{
    struct floors floors = baselines_of(q);
    if (!q->has_grown || !floors.is_freed || !is_tied(q, e))
        return false;
    h->share = share_of(q, e->jumps);
    evidence_for(h, FAIR, "%zu evaluations and checkpoints account for %s of the growth of %s",
                 e->count, CHANGE(e->jumps), SIZE(q->total));
    evidence_add_baselines(h, EVIDENCE_FOR, FAIR, &floors);
    return true;
}

static void evidence_add_free(const struct question *q, struct hypothesis *h,
                              enum evidence_side side, double weight, double live)
{
    evidence_add(h, side, weight, "memory grew by %s, while the live heap changed by %s",
                 SIZE(q->total), CHANGE(live));
}

void test_eval_spike(const struct question *q, struct hypothesis *h)
{
    struct events e = events_of(q);
    if (e.count == 0) {
        evidence_absent(h, "no evaluation or checkpoint marks between steps");
        return;
    }
    if (test_freed_at_events(q, h, &e))
        return;
    if (e.spikes == 0) {
        evidence_against(h, FAIR, "no significant spike at %zu evaluations and checkpoints",
                         e.count);
        return;
    }
    bool recovers = e.recovered * 2 > e.spikes;
    double live = heap_growth(q);
    bool is_free = q->has_grown && !is_leak(q->word) && live < free_share * q->total &&
                   (!q->is_growing || e.highest > 0.3 * q->total);
    bool rises = q->is_growing && !is_free;
    h->share = rises ? 0 : !q->has_grown || is_free ? 1 : e.highest / (e.highest + q->total);
    evidence_add(h, recovers ? EVIDENCE_FOR : EVIDENCE_AGAINST, recovers ? FAIR + WEAK : STRONG,
                 "%zu of %zu evaluations and checkpoints had a spike, of up to %s; %zu spikes were "
                 "released by the next step",
                 e.spikes, e.count, SIZE(e.highest), e.recovered);
    if (is_free && recovers)
        evidence_add_free(q, h, EVIDENCE_FOR, WEAK, live);
    if (q->word == VERDICT_SPIKING)
        evidence_for(h, FAIR,
                     "the verdict is \"spiking\": after each peak, memory returns to its baseline");
    if (rises)
        evidence_against(h, FAIR,
                         "the baseline rose by %s; a temporary spike does not raise the baseline",
                         SIZE(q->total));
}

static void test_event_share(const struct question *q, struct hypothesis *h, const struct events *e)
{
    bool tied = is_tied(q, e);
    if (tied)
        h->share = share_of(q, e->jumps);
    evidence_add(h, tied ? EVIDENCE_FOR : EVIDENCE_AGAINST, tied ? FAIR : STRONG,
                 "%zu evaluations and checkpoints account for %s of the growth of %s", e->count,
                 CHANGE(e->jumps), SIZE(q->total));
}

void test_eval_step(const struct question *q, struct hypothesis *h)
{
    const struct facts_verdict *v = q->f->main ? &q->f->main->verdict : NULL;
    struct events e = events_of(q);
    if (!q->has_grown && !isnan(q->growth)) {
        evidence_add_no_growth(q, h, DECIDES);
        return;
    }
    if (q->word == VERDICT_STEPPING && v && v->event != VERDICT_MARK_EPOCH) {
        /* Fraction of the growth that occurred at events, or 1 if no events were recorded. */
        h->share = e.count > 0 ? share_of(q, e.jumps) : 1;
        evidence_for(h, STRONG + FAIR,
                     "the baseline rises at each %s and stays up (verdict \"stepping\")",
                     v->event == VERDICT_MARK_SAVE ? "checkpoint" : "evaluation");
    }
    if (e.count == 0)
        evidence_absent(h, "no evaluation or checkpoint marks between steps");
    else
        test_event_share(q, h, &e);
    struct floors floors = baselines_of(q);
    if (floors.is_freed)
        evidence_add_baselines(h, EVIDENCE_AGAINST, STRONG, &floors);
    else if (!is_leak(q->word) && heap_growth(q) < free_share * q->total)
        evidence_add_free(q, h, EVIDENCE_AGAINST, FAIR, heap_growth(q));
}
