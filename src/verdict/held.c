/* What resident memory leaves open, or hides, and the profiler of the same process tells once the
 * job is over. */
#include "verdict/judging.h"

#include <math.h>

static const double CONFIDENCE = 0.65; /* as in over.c: nothing tells a first pass from a leak */
/* Deviations of the samples: growth beyond chance, where resident memory grows too, and where it is
 * said to stand. */
static const double CHANCES = 5, CHANCES_ALONE = 8;
static const double MATERIAL = 0.05; /* of the resident floor: what is held grew by so much */
static const double SHARE = 0.25; /* of what resident memory grew by: a cache may fill beside it */
/* Of what is held: resident memory grew by so much, in all and in the later half of the time. */
static const double TOUCHED_ALL = 0.4, TOUCHED = 0.3;
static const double PASSES = 1.5; /* that a job has lasted, for more than the first to be seen */
static const double FALL = 0.4;   /* of it: so much has resident memory come down */

enum { LATE_PART = 10 }; /* of that time: its end */

/* By how much the floor of V rose from FROM_NS on, and in the later half of that time; and how far
 * the highest that a block of readings never fell below is above that of late: one block that lies
 * low is no coming down. */
struct growth {
    double all, late, below;
};

static struct growth growth_from(const struct verdict_series *v, int64_t from_ns)
{
    struct view w;
    double from = ((double)from_ns - (double)v->clock.first_ns) * 1e-9 - v->clock.gap_s;
    double half, high = 0, late = 0, last;
    size_t i = 0;
    view_build(&w, v, false, -HUGE_VAL, from);
    if (w.n == 0)
        return (struct growth){0};
    half = (w.x[0] + w.x[w.n - 1]) / 2;
    last = w.low[w.n - 1];
    while (w.x[i] < half)
        i++;
    for (size_t k = 0; k < w.n; k++)
        high = fmax(high, w.y[k]);
    for (size_t k = w.n - 1 - w.n / LATE_PART; k < w.n; k++)
        late = fmax(late, w.y[k]);
    return (struct growth){last - w.low[0], last - w.low[i], high - late};
}

static void conclude_open(struct verdict_result *r, double growth, double since)
{
    result_drop_end(r);
    result_leave_open(r);
    result_say_first(
        r, &(struct verdict_evidence){.code = VERDICT_SAID_HELD_ALONE, .value = {growth, since}});
}

static void conclude_leak(struct verdict_result *r, const struct verdict_held *held, double since)
{
    if (r->leak == VERDICT_LEAK_NO) {
        result_drop_end(r);
        r->rate_bytes_per_min = held->result.rate_bytes_per_min;
    }
    result_take_word(r, &held->result, CONFIDENCE);
    result_say_first(r, &(struct verdict_evidence){.code = VERDICT_SAID_OVER});
    result_say_first(r, &(struct verdict_evidence){.code = VERDICT_SAID_HELD_GROWS,
                                                   .value = {held->result.rate_bytes_per_min.value,
                                                             held->growth_bytes, since}});
}

/* What grew evenly to the end of a job may be its first pass over the data, where that is known to
 * have lasted nearly as long. */
static bool may_be_first_pass(const struct verdict_series *v)
{
    double pass = v->steps_per_epoch   ? (double)v->steps_per_epoch
                  : v->has_first_epoch ? v->first_epoch_step - v->begin_step
                                       : 0;
    return v->has_step && v->last_step - v->begin_step < PASSES * pass;
}

void verdict_apply_held(struct verdict_result *r, const struct verdict_series *resident,
                        const struct verdict_held *held)
{
    struct growth since = growth_from(resident, held->from_ns);
    double growth = held->growth_bytes;
    if (!resident->is_over || r->leak == VERDICT_LEAK_YES || !r->has_floor ||
        may_be_first_pass(resident) || growth < CHANCES * held->chance_bytes ||
        growth < MATERIAL * r->floor_last_bytes || growth < SHARE * since.all ||
        (r->leak == VERDICT_LEAK_NO && since.below > FALL * growth))
        return;
    if ((r->leak != VERDICT_LEAK_NO || growth >= CHANCES_ALONE * held->chance_bytes) &&
        since.all >= TOUCHED_ALL * growth && since.late >= TOUCHED * growth / 2)
        conclude_leak(r, held, since.all);
    else if (r->leak == VERDICT_LEAK_NO)
        conclude_open(r, growth, since.all);
}
