/* Resident memory that is undecided, and of which malloc knows that nothing in use grows any more.
 */
#include "verdict/judging.h"

#include <math.h>

enum { FIGURES = 6 };                 /* step ends with a figure of the heap's */
static const double SURE = 0.95;      /* confidence of the verdict on what is in use */
static const double STANDS = 0.2;     /* of the pace of resident memory, at the most */
static const double EXPLAINED = 0.7;  /* of its growth, by what malloc has in use or spare */
static const double CONFIDENCE = 0.7; /* at most: what is spare may go on to grow */

/* What the figure W was, as it was read nearest to step X. */
static double value_at(const struct view *w, double x)
{
    size_t i = 0;
    while (i + 1 < w->n && fabs(w->x[i + 1] - x) <= fabs(w->x[i] - x))
        i++;
    return w->y[i];
}

/* By how much V changed from step FROM to step TO; NAN where too little was read. What is spare
 * comes and goes, and has no low tide of its own. */
static double change(const struct verdict_series *v, double from, double to)
{
    struct view w;
    view_build(&w, v, true, -HUGE_VAL, -HUGE_VAL);
    return w.n < FIGURES ? (double)NAN : value_at(&w, to) - value_at(&w, from);
}

static bool has_stopped(const struct verdict_result *r, const struct verdict_result *live)
{
    return live->leak == VERDICT_LEAK_NO && live->confidence >= SURE &&
           r->rate_bytes_per_step.known && live->rate_bytes_per_step.known &&
           live->rate_bytes_per_step.value <= STANDS * r->rate_bytes_per_step.value;
}

/* What rose without being certain has ended with what is in use. What looked like a leak is none by
 * that, but it goes on for now: open. */
static void conclude(struct verdict_result *r)
{
    if (r->leak == VERDICT_LEAK_YES) {
        result_leave_open(r);
    } else {
        r->word = VERDICT_PLATEAUED;
        r->leak = VERDICT_LEAK_NO;
        r->confidence = CONFIDENCE;
        result_drop(r, VERDICT_SAID_PEAK_OOM);
        r->oom.known = false;
    }
    r->alarm = r->forecast.known = false;
}

void verdict_apply_free(struct verdict_result *r, const struct verdict_series *resident,
                        const struct verdict_result *live, const struct verdict_series *in_use,
                        const struct verdict_series *spare)
{
    struct view w;
    double grown, used, kept, from;
    size_t lowest = 0;
    if (r->word == VERDICT_FILLING || r->leak == VERDICT_LEAK_NO || !has_stopped(r, live))
        return;
    view_build(&w, resident, true, -HUGE_VAL, -HUGE_VAL);
    view_trim_startup(&w);
    if (w.n < FIGURES)
        return;
    /* The low tide has been rising since resident memory was lowest. */
    for (size_t i = 1; i < w.n; i++)
        lowest = w.y[i] <= w.y[lowest] ? i : lowest;
    from = w.x[lowest];
    grown = w.low[w.n - 1] - w.low[lowest];
    used = change(in_use, from, w.x[w.n - 1]);
    kept = change(spare, from, w.x[w.n - 1]);
    if (!(grown > 0) || !(used + kept >= EXPLAINED * grown)) /* NAN: nor then */
        return;
    conclude(r);
    result_say_first(r, &(struct verdict_evidence){.code = VERDICT_SAID_SPARE,
                                                   .value = {grown, fmax(0, used), kept, 0}});
}
