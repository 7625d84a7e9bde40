/* What resident memory leaves open and the live heap of the same process tells. */
#include "verdict/verdict.h"

#include <math.h>
#include <string.h>

static const double SURE = 0.8;       /* confidence of the live heap's verdict at least */
static const double SHARE = 0.5;      /* of the growth of resident memory that it explains */
static const double MATERIAL = 0.025; /* of the resident floor: live growth that counts */
static const double CONFIDENCE = 0.9; /* at most: two series were looked at */

/* One rate of both in the same unit, by step where both have it. */
static bool rates_of(const struct verdict_result *resident, const struct verdict_result *live,
                     double *ret_resident, double *ret_live, bool *ret_by_step)
{
    *ret_by_step = resident->rate_bytes_per_step.known && live->rate_bytes_per_step.known;
    if (!*ret_by_step && !(resident->rate_bytes_per_min.known && live->rate_bytes_per_min.known))
        return false;
    *ret_resident =
        *ret_by_step ? resident->rate_bytes_per_step.value : resident->rate_bytes_per_min.value;
    *ret_live = *ret_by_step ? live->rate_bytes_per_step.value : live->rate_bytes_per_min.value;
    return true;
}

/* The reason that is said first. */
static void say_first(struct verdict_result *r, const struct verdict_evidence *e)
{
    size_t kept = r->n_evidence < VERDICT_EVIDENCE ? r->n_evidence : VERDICT_EVIDENCE - 1;

    memmove(r->evidence + 1, r->evidence, kept * sizeof(r->evidence[0]));
    r->evidence[0] = *e;
    r->n_evidence = (uint32_t)kept + 1;
}

void verdict_hear_live(struct verdict_result *resident, const struct verdict_result *live)
{
    double resident_rate, live_rate, growth = live->floor_last_bytes - live->floor_first_bytes;
    bool by_step;

    if (resident->word != VERDICT_UNDECIDED || live->leak != VERDICT_LEAK_YES ||
        live->confidence < SURE || !resident->has_floor || !live->has_floor ||
        growth < MATERIAL * resident->floor_last_bytes ||
        !rates_of(resident, live, &resident_rate, &live_rate, &by_step) || !(resident_rate > 0) ||
        live_rate < SHARE * resident_rate)
        return;
    resident->word = live->word;
    resident->leak = VERDICT_LEAK_YES;
    resident->confidence = fmin(live->confidence, CONFIDENCE);
    resident->alarm = live->alarm;
    resident->log_wealth = live->log_wealth;
    resident->event = live->event;
    resident->forecast.known = false;
    say_first(resident,
              &(struct verdict_evidence){
                  .code = VERDICT_SAID_LIVE_GROWS,
                  .value = {live_rate, by_step, live_rate / resident_rate, live->confidence}});
}
