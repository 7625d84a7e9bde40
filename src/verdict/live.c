/* What resident memory leaves open and the live heap of the same process tells. */
#include "verdict/judging.h"

#include <math.h>
#include <string.h>

static const double SURE = 0.8;       /* confidence of the live heap's verdict at least */
static const double SHARE = 0.5;      /* of the growth of resident memory that it explains */
static const double MOST = 0.7;       /* of it, where it tells that a leak comes at events */
static const double MATERIAL = 0.025; /* of the resident floor: live growth that counts */
static const double CONFIDENCE = 0.9; /* at most: two series were looked at */
/* Where it is nearly certain and both have the same pace, within this part of it, less counts. */
static const double CERTAIN = 0.95, SAME_PACE = 0.75, MATERIAL_SAME = 0.01;
/* Where resident memory stands and what is in use grows: so much of the resident floor, and with
 * that much confidence at most. */
static const double HOLES_MATERIAL = 0.05, HOLES_CONFIDENCE = 0.8, HOLES_FALL = 0.4;

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

void result_say_first(struct verdict_result *r, const struct verdict_evidence *e)
{
    size_t kept = r->n_evidence < VERDICT_EVIDENCE ? r->n_evidence : VERDICT_EVIDENCE - 1;
    memmove(r->evidence + 1, r->evidence, kept * sizeof r->evidence[0]);
    r->evidence[0] = *e;
    r->n_evidence = (uint32_t)kept + 1;
}

void result_leave_open(struct verdict_result *r)
{
    r->word = VERDICT_UNDECIDED;
    r->leak = VERDICT_LEAK_UNKNOWN;
    r->confidence = 0.5;
}

void result_take_word(struct verdict_result *resident, const struct verdict_result *live,
                      double confidence)
{
    resident->word = live->word;
    resident->leak = VERDICT_LEAK_YES;
    resident->confidence = fmin(live->confidence, confidence);
    resident->alarm = live->alarm;
    resident->log_wealth = live->log_wealth;
    resident->event = live->event;
    resident->forecast.known = false;
}

/* Resident memory is undecided though it grows. */
static void apply_open(struct verdict_result *resident, const struct verdict_result *live)
{
    double resident_rate, live_rate, growth = live->floor_last_bytes - live->floor_first_bytes;
    bool by_step;
    if (!rates_of(resident, live, &resident_rate, &live_rate, &by_step) || !(resident_rate > 0) ||
        live_rate < SHARE * resident_rate)
        return;
    bool is_same = live->confidence >= CERTAIN && live_rate >= SAME_PACE * resident_rate &&
                   resident_rate >= SAME_PACE * live_rate;
    if (growth < (is_same ? MATERIAL_SAME : MATERIAL) * resident->floor_last_bytes)
        return;
    result_take_word(resident, live, CONFIDENCE);
    result_say_first(
        resident, &(struct verdict_evidence){
                      .code = VERDICT_SAID_LIVE_GROWS,
                      .value = {live_rate, by_step, live_rate / resident_rate, live->confidence}});
}

void result_drop(struct verdict_result *r, enum verdict_evidence_code code)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < r->n_evidence; i++)
        if (r->evidence[i].code != code)
            r->evidence[kept++] = r->evidence[i];
    r->n_evidence = kept;
}

void result_drop_end(struct verdict_result *r)
{
    result_drop(r, VERDICT_SAID_ENDED);
    result_drop(r, VERDICT_SAID_FLAT);
    result_drop(r, VERDICT_SAID_RESIDUAL);
    r->growth_ended.known = false;
}

/* Is resident memory, though it is said to stand, certain to rise at the pace of what is in use, or
 * half of it? Then it is noise alone that hides its rise. */
static bool follows(const struct verdict_result *resident, const struct verdict_result *live)
{
    double resident_rate, live_rate;
    bool by_step;
    return rates_of(resident, live, &resident_rate, &live_rate, &by_step) && live_rate > 0 &&
           (by_step ? resident->rate_bytes_per_step.low : resident->rate_bytes_per_min.low) >=
               SHARE * live_rate;
}

/* Resident memory stands, and what is in use grows: into holes that the process holds already. That
 * is a leak as well, and its pace is that of the live heap. It is none where resident memory has
 * come down by much of that growth, which was given back then though it is not read yet, unless its
 * own slope bears the growth out; nor where more is in use than is resident: that was never
 * touched. */
static void apply_hidden(struct verdict_result *resident, const struct verdict_result *live)
{
    double growth = live->floor_last_bytes - live->floor_first_bytes;
    bool by_step = live->rate_bytes_per_step.known;
    if (growth < HOLES_MATERIAL * resident->floor_last_bytes ||
        (resident->highest_floor_bytes - resident->floor_last_bytes > HOLES_FALL * growth &&
         !follows(resident, live)) ||
        live->floor_last_bytes > resident->floor_last_bytes ||
        !(by_step || live->rate_bytes_per_min.known))
        return;
    result_take_word(resident, live, HOLES_CONFIDENCE);
    result_drop_end(resident);
    resident->rate_bytes_per_step = live->rate_bytes_per_step;
    resident->rate_bytes_per_min = live->rate_bytes_per_min;
    resident->oom = live->oom;
    result_say_first(resident,
                     &(struct verdict_evidence){.code = VERDICT_SAID_LIVE_HIDDEN,
                                                .value = {by_step ? live->rate_bytes_per_step.value
                                                                  : live->rate_bytes_per_min.value,
                                                          by_step, growth, live->confidence}});
}

/* Both leak, and what is in use does so at events: less comes between than in resident memory,
 * which batches and the allocator move too. */
static void apply_events(struct verdict_result *resident, const struct verdict_result *live)
{
    double resident_rate, live_rate;
    bool by_step;
    if (live->word != VERDICT_STEPPING || resident->word != VERDICT_LEAKING ||
        !rates_of(resident, live, &resident_rate, &live_rate, &by_step) ||
        live_rate < MOST * resident_rate)
        return;
    resident->word = live->word;
    resident->event = live->event;
    for (uint32_t i = 0; i < live->n_evidence; i++)
        if (live->evidence[i].code == VERDICT_SAID_EVENT_STEPS)
            result_say_first(resident, &live->evidence[i]);
}

void verdict_apply_live(struct verdict_result *resident, const struct verdict_result *live)
{
    if (live->leak != VERDICT_LEAK_YES || live->confidence < SURE || !resident->has_floor ||
        !live->has_floor)
        return;
    if (resident->leak == VERDICT_LEAK_UNKNOWN)
        apply_open(resident, live);
    else if (resident->leak == VERDICT_LEAK_NO)
        apply_hidden(resident, live);
    else
        apply_events(resident, live);
}
