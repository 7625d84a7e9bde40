/* Forecasts growth that is explained by a container with a maximum number of entries; such growth
 * ends when the container is full. */
#include "verdict/judging.h"

#include <math.h>

enum { READINGS_AT_LEAST = 3 };
/* The container must explain at least this fraction of the growth. The container has stopped
 * growing if its rate in the last third of the time is below this fraction of its mean rate. */
static const double MOST = 0.5;
/* Other memory is treated as growing if its growth in the last third of the time exceeds this
 * fraction of the container's growth. */
static const double BESIDE = 0.1;
/* If the container's estimated growth exceeds that of memory by this factor, the estimate is wrong,
 * for example because entries share memory. */
static const double TOO_MUCH = 2;
/* Confidence that growth ends when the container is full. */
static const double CONFIDENCE = 0.9;

struct growth {
    /* growth since the container's first reading, and in the last third of that time */
    double all, recent;
};

/* Returns the growth of V's baseline from x = FROM to x = UNTIL. */
static struct growth growth_of(const struct verdict_series *v, bool by_step, double from,
                               double until)
{
    struct view w;
    view_build(&w, v, by_step, -HUGE_VAL, -HUGE_VAL);
    if (!w.n)
        return (struct growth){0, 0};
    double end = view_low_at(&w, until);
    return (struct growth){end - view_low_at(&w, from),
                           end - view_low_at(&w, until - (until - from) / 3)};
}

bool verdict_find_limited(const struct verdict_series *resident, const struct verdict_series *live,
                          const struct verdict_container *c, struct verdict_limited *ret)
{
    struct view w;
    bool by_step = judging_use_steps(resident);
    view_build(&w, c->bytes, by_step, -HUGE_VAL, -HUGE_VAL);
    if (w.n < READINGS_AT_LEAST || !(c->most > 0) || !(c->entries > 0) || c->entries > c->most)
        return false;
    double from = w.x[0], until = w.x[w.n - 1];
    struct growth own = growth_of(c->bytes, by_step, from, until);
    struct growth all = growth_of(live ? live : resident, by_step, from, until);
    double share = own.all / all.all;
    if (!(own.all > 0) || !(all.all > 0) || share < MOST || share > TOO_MUCH ||
        all.recent - own.recent > BESIDE * own.all)
        return false;
    double left = fmax(0, c->most - c->entries) * w.y[w.n - 1] / c->entries / own.all;
    *ret = (struct verdict_limited){
        .entries = c->entries,
        .most = c->most,
        .share = fmin(1, share),
        .is_growing = c->entries < c->most && own.recent >= MOST * own.all / 3,
        .left_bytes = left * fmax(0, growth_of(resident, by_step, from, until).all),
        .left_x = left * (until - from),
        .by_step = by_step,
    };
    return true;
}

bool verdict_grows_beside(const struct verdict_container *c, const struct verdict_container *other)
{
    struct view w;
    bool by_step = judging_use_steps(c->bytes);
    view_build(&w, c->bytes, by_step, -HUGE_VAL, -HUGE_VAL);
    if (!w.n)
        return false;
    double from = w.x[0], until = w.x[w.n - 1];
    return growth_of(other->bytes, by_step, from, until).recent >
           BESIDE * growth_of(c->bytes, by_step, from, until).all;
}

static void set_forecast(struct verdict_result *r, const struct verdict_series *v, double ceiling,
                         const struct verdict_limited *l)
{
    double seconds_per_x = l->by_step ? judging_seconds_per_step(v, 0) : 1;
    double now = l->by_step ? v->last_step : v->by_time.slot[v->by_time.count - 1].x;
    r->forecast.known = r->forecast.is_limited = r->forecast.has_ceiling = true;
    r->forecast.ceiling_bytes = ceiling;
    r->forecast.has_step = l->by_step;
    r->forecast.decided_at_step = l->by_step ? judging_step(ceil(now + l->left_x)) : 0;
    r->forecast.has_t = seconds_per_x > 0;
    r->forecast.decided_at_s =
        judging_caller_seconds(v, l->by_step ? v->last_step_s : now) + l->left_x * seconds_per_x;
}

bool verdict_limited_fits(const struct verdict_result *r, const struct verdict_limit *limit,
                          const struct verdict_limited *l)
{
    return r->has_floor && (!limit || !limit->known ||
                            r->floor_last_bytes + l->left_bytes + (double)limit->other_bytes <=
                                (double)limit->limit_bytes);
}

void verdict_set_limited(struct verdict_result *r, const struct verdict_series *v,
                         const struct verdict_limit *limit, const struct verdict_limited *l)
{
    static const enum verdict_evidence_code unneeded[] = {
        VERDICT_SAID_OVER, VERDICT_SAID_NO_EPOCH, VERDICT_SAID_EPOCH_UNKNOWN, VERDICT_SAID_PEAK_OOM,
        VERDICT_SAID_WEIGHED};
    if (r->leak == VERDICT_LEAK_NO)
        return;
    result_leave_open(r);
    result_drop_end(r);
    for (size_t i = 0; i < sizeof unneeded / sizeof *unneeded; i++)
        result_drop(r, unneeded[i]);
    r->alarm = r->forecast.known = r->oom.known = r->has_probability = false;
    if (l->is_growing) {
        r->word = VERDICT_FILLING;
        r->confidence = CONFIDENCE;
        set_forecast(r, v, r->floor_last_bytes + l->left_bytes, l);
        r->forecast.has_fits = r->forecast.fits = limit && limit->known;
    }
    verdict_put_evidence_first(
        r, &(struct verdict_evidence){
               .code = VERDICT_SAID_LIMITED,
               .value = {l->entries, l->most, l->share, l->is_growing ? l->left_bytes : 0}});
}
