/* Uses malloc's statistics to explain growth of resident memory after the live heap has stopped
 * growing. */
#include "verdict/judging.h"

#include <math.h>

/* Smallest number of readings at step ends. */
enum { FIGURES = 6 };
static const double MIN_CONFIDENCE = 0.95; /* required confidence of the verdict on the live heap */
/* Largest growth rate of the live heap, as a fraction of the growth rate of resident memory. */
static const double LIVE_RATE_MOST = 0.2;
/* Live and free heap memory together must explain at least this fraction of the growth. */
static const double EXPLAINED = 0.7;
/* Highest confidence, because the free heap may go on growing. */
static const double CONFIDENCE = 0.7;

static double value_at(const struct view *w, double x)
{
    size_t i = 0;
    while (i + 1 < w->n && fabs(w->x[i + 1] - x) <= fabs(w->x[i] - x))
        i++;
    return w->y[i];
}

/* Returns the change of V from step FROM to step TO, or NAN if there are too few readings. Single
 * readings are used, because the free heap fluctuates and has no baseline. */
static double change(const struct verdict_series *v, double from, double to)
{
    struct view w;
    view_build(&w, v, true, -HUGE_VAL, -HUGE_VAL);
    return w.n < FIGURES ? (double)NAN : value_at(&w, to) - value_at(&w, from);
}

static bool has_stopped(const struct verdict_result *r, const struct verdict_result *live)
{
    return live->leak == VERDICT_LEAK_NO && live->confidence >= MIN_CONFIDENCE &&
           r->rate_bytes_per_step.known && live->rate_bytes_per_step.known &&
           live->rate_bytes_per_step.value <= LIVE_RATE_MOST * r->rate_bytes_per_step.value;
}

/* Sets the verdict on growth of which malloc's statistics explain most. If it was undecided, it
 * becomes plateaued, because the live heap has stopped growing. If it was a leak, it becomes
 * undecided: retained memory is not a leak, but may go on growing. */
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

/* Growth of RESIDENT's baseline since its lowest reading, and growth of the live heap and of the
 * free heap over the same steps. */
struct growths {
    double all, used, kept;
};

/* Returns false if there are too few readings or no growth. */
static bool find_growths(const struct verdict_series *resident, const struct verdict_series *in_use,
                         const struct verdict_series *spare, struct growths *ret)
{
    struct view w;
    size_t lowest = 0;
    view_build(&w, resident, true, -HUGE_VAL, -HUGE_VAL);
    view_trim_startup(&w);
    if (w.n < FIGURES)
        return false;
    for (size_t i = 1; i < w.n; i++)
        lowest = w.y[i] <= w.y[lowest] ? i : lowest;
    ret->all = w.low[w.n - 1] - w.low[lowest];
    ret->used = change(in_use, w.x[lowest], w.x[w.n - 1]);
    ret->kept = change(spare, w.x[lowest], w.x[w.n - 1]);
    return ret->all > 0 && !isnan(ret->used) && !isnan(ret->kept);
}

double verdict_outside_heap(const struct verdict_series *resident,
                            const struct verdict_series *in_use, const struct verdict_series *spare)
{
    struct growths g;
    return find_growths(resident, in_use, spare, &g)
               ? fmax(0, 1 - (fmax(0, g.used) + fmax(0, g.kept)) / g.all)
               : 0;
}

void verdict_apply_free(struct verdict_result *r, const struct verdict_series *resident,
                        const struct verdict_result *live, const struct verdict_series *in_use,
                        const struct verdict_series *spare)
{
    struct growths g;
    if (r->word == VERDICT_FILLING || r->leak == VERDICT_LEAK_NO || !has_stopped(r, live) ||
        !find_growths(resident, in_use, spare, &g) || g.used + g.kept < EXPLAINED * g.all)
        return;
    conclude(r);
    verdict_put_evidence_first(
        r, &(struct verdict_evidence){.code = VERDICT_SAID_SPARE,
                                      .value = {g.all, fmax(0, g.used), g.kept, 0}});
}
