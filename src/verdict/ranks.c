/* Compares the growth rate of each rank with those of its peers. */
#include "verdict/ranks.h"

#include <math.h>
#include <stdlib.h>

/* Ratio of the standard deviation of a normal distribution to its median absolute deviation. */
static const double MAD_SCALE = 1.4826;
/* Half-width of the intervals of growth rates, in standard errors (outlook.c). */
static const double RATE_Z = 2.2;
/* Probability of reporting a rank although all ranks are alike; equals the default of alpha in
 * verdict_options. */
static const double FALSE_ALARM = 0.01;
/* Lower bound on the computed tail probability of Student's distribution. */
static const double LEAST_P = 1e-12;
/* With at least this many degrees of freedom, Student's distribution is practically normal. */
enum { MOST_FREEDOM = 200 };

static const struct verdict_interval *ranks_rate(const struct verdict_result *r, bool by_step)
{
    return by_step ? &r->rate_bytes_per_step : &r->rate_bytes_per_min;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts N values and returns their median. */
static double ranks_median(double *values, size_t n)
{
    qsort(values, n, sizeof *values, ascending);
    return n ? (values[(n - 1) / 2] + values[n / 2]) / 2 : 0;
}

/* Returns true if rates per step are compared. They are preferred, because growth per minute is
 * lower on slower nodes. Rates per minute are compared only if more ranks have a rate per minute
 * than a rate per step. */
static bool ranks_by_step(const struct verdict_result *const *results, size_t n)
{
    size_t by_step = 0, by_min = 0;
    for (size_t i = 0; i < n; i++) {
        by_step += results[i]->rate_bytes_per_step.known;
        by_min += results[i]->rate_bytes_per_min.known;
    }
    return by_step > 0 && by_step >= by_min;
}

/* Returns the probability that Student's t with FREEDOM degrees of freedom exceeds T >= 0
 * (Abramowitz and Stegun 26.7.3 and 26.7.4). */
static double student_tail(double t, size_t freedom)
{
    size_t n = freedom < MOST_FREEDOM ? freedom : MOST_FREEDOM;
    double angle = atan(t / sqrt((double)n)), cosine = cos(angle), term, sum;
    bool is_odd = n % 2;
    sum = term = is_odd ? cosine : 1;
    for (size_t k = is_odd ? 3 : 2; k + 2 <= n; k += 2) {
        term *= cosine * cosine * (double)(k - 1) / (double)k;
        sum += term;
    }
    double within = sin(angle) * sum;
    if (is_odd)
        within = 2 / acos(-1) * (angle + (n > 1 ? within : 0));
    return fmax(LEAST_P, (1 - within) / 2);
}

/* Converts a p-value to the log of an e-value: the mean over k of k p^(k-1), which is valid for any
 * alternative (Vovk and Wang 2021). For a rank that is like its peers, the e-value's expectation is
 * at most 1, so odds may be multiplied by the e-value. */
static double log_e_value(double p)
{
    double l = log(p);
    return log((1 - p + p * l) / (p * l * l));
}

/* Returns the variance of a rank's growth rate, computed from its interval. */
static double rate_variance(const struct verdict_interval *rate)
{
    double half = (rate->high - rate->low) / 2 / RATE_Z;
    return isfinite(half) ? half * half : rate->value * rate->value;
}

/* Collects the growth rates in PLACES. Returns the median of the smallest detectable rates, which
 * limits how well ranks can be compared. */
static double ranks_collect(const struct verdict_result *const *results, size_t n, double *scratch,
                            struct ranks_peers *p, struct ranks_place *places)
{
    size_t known = 0;
    for (size_t i = 0; i < n; i++) {
        const struct verdict_interval *rate = ranks_rate(results[i], p->by_step);
        double least =
            p->by_step ? results[i]->detectable_per_step : results[i]->detectable_per_min;
        places[i] = (struct ranks_place){.is_compared = rate->known, .rate = rate->value};
        p->count += rate->known;
        p->flat += rate->known && results[i]->leak == VERDICT_LEAK_NO;
        if (rate->known && least > 0)
            scratch[known++] = least;
    }
    return ranks_median(scratch, known);
}

void ranks_compare(const struct verdict_result *const *results, size_t n, double *scratch,
                   struct ranks_peers *ret, struct ranks_place *places)
{
    struct ranks_peers p = {.by_step = ranks_by_step(results, n)};
    size_t k = 0;
    double least = ranks_collect(results, n, scratch, &p, places);
    for (size_t i = 0; i < n; i++)
        if (places[i].is_compared)
            scratch[k++] = places[i].rate;
    p.median = ranks_median(scratch, k);
    for (size_t i = 0; i < k; i++)
        scratch[i] = fabs(scratch[i] - p.median);
    p.spread = MAD_SCALE * ranks_median(scratch, k);
    for (size_t i = 0; i < n; i++) {
        struct ranks_place *at = &places[i];
        /* median and spread are estimated from the ranks, which uses up two degrees of freedom */
        at->is_compared = at->is_compared && p.count > 2;
        if (!at->is_compared)
            continue;
        double variance =
            p.spread * p.spread + least * least + rate_variance(ranks_rate(results[i], p.by_step));
        double above = at->rate - p.median;
        at->score = variance > 0 ? above / sqrt(variance) : 0;
        double tail = at->score > 0 ? student_tail(at->score, p.count - 2) : 0.5;
        at->log_evidence = fmax(0, log_e_value(tail) - log((double)p.count));
        at->differs = tail * (double)p.count < FALSE_ALARM;
    }
    *ret = p;
}

double ranks_probability(const struct verdict_result *r, const struct ranks_place *place,
                         const struct ranks_peers *peers)
{
    const struct verdict_interval *rate = ranks_rate(r, peers->by_step);
    size_t others = peers->count - (place->is_compared ? 1 : 0);
    bool is_flat = r->leak == VERDICT_LEAK_NO;
    if (!place->is_compared || is_flat || !(rate->low > 0) || 2 * peers->flat <= others)
        return 0;
    double own = r->leak == VERDICT_LEAK_YES ? r->confidence
                 : r->has_probability        ? r->probability
                                             : 0.5;
    own = fmin(0.999, fmax(0.001, own));
    return 1 / (1 + exp(-(log(own / (1 - own)) + place->log_evidence)));
}

void ranks_add_evidence(struct verdict_result *r, const struct ranks_place *place,
                        const struct ranks_peers *peers)
{
    verdict_put_evidence_first(
        r, &(struct verdict_evidence){
               .code = VERDICT_SAID_PEERS,
               .value = {place->rate, peers->by_step, peers->median, (double)peers->count}});
}
