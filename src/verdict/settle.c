/* Chooses the verdict word, such as leaking, from the probability of a leak given all evidence. */
#include <math.h>

#include "verdict/judging.h"

/* A probability of a leak above LEAK_FROM or below NO_LEAK_UNTIL decides the verdict. Between the
 * two, the shape of resident memory decides it, with low confidence. */
static const double LEAK_FROM = 0.75, NO_LEAK_UNTIL = 0.2, OPEN_CONFIDENCE = 0.65;
/* The probability above which a running job is judged as leaking. It is higher than LEAK_FROM,
 * because a running job is judged many times and its growth may still end. */
static const double RUNNING_LEAK_FROM = 0.92;
/* If a job ends before it has completed this many epochs, growth up to its end may be that of a
 * cache that fills in the first epoch. */
static const double FIRST_EPOCH = 1.15;
/* Highest confidence if no epoch is known, because a first epoch as long as the job cannot be
 * excluded. A leak in a running job has exactly this confidence if no epoch is known: it was judged
 * as a leak because it had been probable for some time, so the probability at this moment does not
 * matter. */
static const double NO_EPOCH_CONFIDENCE = 0.9;

enum verdict_leak verdict_leak_of(double probability, bool is_over)
{
    if (!is_over)
        return probability >= RUNNING_LEAK_FROM ? VERDICT_LEAK_YES : VERDICT_LEAK_UNKNOWN;
    return probability >= LEAK_FROM       ? VERDICT_LEAK_YES
           : probability <= NO_LEAK_UNTIL ? VERDICT_LEAK_NO
                                          : VERDICT_LEAK_UNKNOWN;
}

bool verdict_may_be_first_epoch(const struct trend *resident)
{
    return resident->epochs > 0 && resident->epochs < FIRST_EPOCH;
}

/* Adds the probability of a leak as evidence and, if a leak is probable, the two features that
 * contribute most to it. */
static void add_reasons(struct verdict_result *r)
{
    int best = -1, second = -1;
    for (int i = 0; r->probability >= 0.5 && i < MODEL_COUNT; i++) {
        double c = r->contributions[i];
        if (c > 0 && (best < 0 || c > r->contributions[best])) {
            second = best;
            best = i;
        } else if (c > 0 && (second < 0 || c > r->contributions[second])) {
            second = i;
        }
    }
    verdict_put_evidence_first(r,
                               &(struct verdict_evidence){.code = VERDICT_SAID_WEIGHED,
                                                          .value = {r->probability, best, second,
                                                                    r->leak == VERDICT_LEAK_NO}});
}

/* Sets the time to the limit at R's rate, counted from the last reading. */
static void set_oom(struct verdict_result *r, const struct verdict_series *v,
                    const struct verdict_limit *limit)
{
    const struct verdict_interval *rate = &r->rate_bytes_per_min;
    double room = (double)limit->limit_bytes - (double)limit->other_bytes - v->last_bytes;
    if (r->oom.known || !limit->known || !rate->known || !(rate->high > 0))
        return;
    r->oom.known = r->oom.has_t = true;
    r->oom.limit_bytes = (double)limit->limit_bytes;
    r->oom.eta_s_low = fmax(0, room) / rate->high * 60;
    r->oom.eta_s_high = rate->low > 0 ? fmax(0, room) / rate->low * 60 : (double)INFINITY;
}

static void set_leak(struct verdict_result *r, const struct verdict_series *v,
                     const struct verdict_limit *limit, double bytes_per_s)
{
    double pace = judging_seconds_per_step(v, 0);
    result_drop_end(r);
    result_drop(r, VERDICT_SAID_EARLY);
    r->word = VERDICT_LEAKING;
    r->forecast.known = false;
    if (!(r->rate_bytes_per_min.known && r->rate_bytes_per_min.value > 0) && bytes_per_s > 0) {
        double rate = 60 * bytes_per_s;
        r->rate_bytes_per_min = (struct verdict_interval){true, rate, 0, 2 * rate};
        if (pace > 0)
            r->rate_bytes_per_step =
                (struct verdict_interval){true, bytes_per_s * pace, 0, 2 * bytes_per_s * pace};
    }
    r->leak = VERDICT_LEAK_YES;
    if (!v->is_over)
        set_oom(r, v, limit);
    verdict_name_leak(r, v);
}

static void set_no_leak(struct verdict_result *r, const struct verdict_series *v)
{
    double growth = r->floor_last_bytes - r->floor_first_bytes;
    r->word = r->has_floor && growth > v->options.material_fraction * r->floor_first_bytes
                  ? VERDICT_PLATEAUED
                  : VERDICT_STABLE;
    r->forecast.known = r->oom.known = r->alarm = false;
    result_drop(r, VERDICT_SAID_PEAK_OOM);
}

void verdict_leave_open(struct verdict_result *r)
{
    r->shape_leaks = r->leak == VERDICT_LEAK_YES;
    if (r->shape_leaks)
        result_leave_open(r);
    r->alarm = false;
}

/* If the shape of resident memory shows a leak, the verdict stays a leak, because the other
 * evidence may not show a small leak. */
void verdict_settle(struct verdict_result *r, const struct verdict_series *v,
                    const struct verdict_limit *limit, enum verdict_leak leak, double bytes_per_s,
                    bool is_outside)
{
    if (!v->is_over && leak != VERDICT_LEAK_YES)
        return;
    if (leak == VERDICT_LEAK_YES && r->leak != VERDICT_LEAK_YES)
        set_leak(r, v, limit, bytes_per_s);
    else if (leak == VERDICT_LEAK_NO && r->leak == VERDICT_LEAK_UNKNOWN && !is_outside)
        set_no_leak(r, v);
    r->leak = verdict_word_leak(r->word);
    bool is_epoch_known = v->steps_per_epoch || v->has_first_epoch;
    double most = leak == VERDICT_LEAK_YES && !is_epoch_known ? NO_EPOCH_CONFIDENCE : 0.99;
    if (leak != r->leak || leak == VERDICT_LEAK_UNKNOWN)
        r->confidence = fmin(r->confidence, OPEN_CONFIDENCE);
    else if (v->is_over || is_epoch_known)
        r->confidence = fmin(most, fmax(r->probability, 1 - r->probability));
    else
        r->confidence = most;
    /* This evidence may already exist, because a process is judged again when it exits. */
    result_drop(r, VERDICT_SAID_WEIGHED);
    add_reasons(r);
}
