/* Revises verdicts on resident memory using the live heap of the same process. */
#include "verdict/judging.h"

#include <math.h>
#include <string.h>

static const double MIN_CONFIDENCE = 0.8; /* required confidence of the verdict on the live heap */
/* The live heap must explain at least this fraction of the growth of resident memory. */
static const double SHARE = 0.5;
/* A leak of resident memory is judged as stepping if the live heap is stepping and its growth rate
 * is at least this fraction of resident memory's growth rate. */
static const double MOST = 0.7;
/* Smallest growth of the live heap that is considered, as a fraction of the resident baseline. */
static const double MATERIAL = 0.025;
static const double CONFIDENCE = 0.9; /* highest confidence of a verdict that compares two series */
/* If the verdict on the live heap has at least the confidence CERTAIN, and the lower of the two
 * growth rates is at least SAME_PACE times the higher one, growth of MATERIAL_SAME is enough
 * instead of MATERIAL. */
static const double CERTAIN = 0.95, SAME_PACE = 0.75, MATERIAL_SAME = 0.01;
/* Thresholds for a live heap that grows while resident memory is level. HOLES_MATERIAL is the
 * smallest growth, as a fraction of the resident baseline. HOLES_CONFIDENCE is the highest
 * confidence. HOLES_FALL is the largest fall of resident memory, as a fraction of the growth. */
static const double HOLES_MATERIAL = 0.05, HOLES_CONFIDENCE = 0.8, HOLES_FALL = 0.4;

/* Gets both growth rates in the same unit: per step if both rates per step are known, else per
 * minute. */
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

void verdict_put_evidence_first(struct verdict_result *r, const struct verdict_evidence *e)
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

/* Copies the word of LIVE, which is a leak, to RESIDENT and limits the confidence to CONFIDENCE. */
static void result_take_word(struct verdict_result *resident, const struct verdict_result *live,
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

/* Applies the verdict on the live heap to undecided, growing resident memory. */
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
    verdict_put_evidence_first(
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

/* Returns true if resident memory was judged level only because of noise: the lower bound of its
 * growth rate is at least half the rate of the live heap. */
static bool resident_follows(const struct verdict_result *resident,
                             const struct verdict_result *live)
{
    double resident_rate, live_rate;
    bool by_step;
    return rates_of(resident, live, &resident_rate, &live_rate, &by_step) && live_rate > 0 &&
           (by_step ? resident->rate_bytes_per_step.low : resident->rate_bytes_per_min.low) >=
               SHARE * live_rate;
}

/* Handles resident memory that is level while the live heap grows into memory that was already
 * resident. This is a leak at the rate of the live heap, with two exceptions. If resident memory
 * has fallen by much of the growth, the growth was released after the last reading of the live heap
 * (unless the slope of resident memory confirms the growth). If the live heap exceeds resident
 * memory, the program never wrote to the added memory. */
static void apply_hidden(struct verdict_result *resident, const struct verdict_result *live)
{
    double growth = live->floor_last_bytes - live->floor_first_bytes;
    bool by_step = live->rate_bytes_per_step.known;
    if (growth < HOLES_MATERIAL * resident->floor_last_bytes ||
        (resident->highest_floor_bytes - resident->floor_last_bytes > HOLES_FALL * growth &&
         !resident_follows(resident, live)) ||
        live->floor_last_bytes > resident->floor_last_bytes ||
        !(by_step || live->rate_bytes_per_min.known))
        return;
    result_take_word(resident, live, HOLES_CONFIDENCE);
    result_drop_end(resident);
    resident->rate_bytes_per_step = live->rate_bytes_per_step;
    resident->rate_bytes_per_min = live->rate_bytes_per_min;
    resident->oom = live->oom;
    verdict_put_evidence_first(
        resident, &(struct verdict_evidence){.code = VERDICT_SAID_LIVE_HIDDEN,
                                             .value = {by_step ? live->rate_bytes_per_step.value
                                                               : live->rate_bytes_per_min.value,
                                                       by_step, growth, live->confidence}});
}

/* Changes a leak of resident memory to stepping if the live heap leaks at events. The live heap
 * shows jumps at events more clearly, because batches and the allocator also change resident memory
 * between events. */
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
            verdict_put_evidence_first(resident, &live->evidence[i]);
}

void verdict_apply_live(struct verdict_result *resident, const struct verdict_result *live)
{
    if (live->leak != VERDICT_LEAK_YES || live->confidence < MIN_CONFIDENCE ||
        !resident->has_floor || !live->has_floor)
        return;
    if (resident->leak == VERDICT_LEAK_UNKNOWN)
        apply_open(resident, live);
    else if (resident->leak == VERDICT_LEAK_NO)
        apply_hidden(resident, live);
    else
        apply_events(resident, live);
}
