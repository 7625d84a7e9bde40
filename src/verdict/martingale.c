/* Computes a conformal test martingale on ranks: a mixture of bets that differ in power and
 * onset. */
#include "verdict/martingale.h"

#include <math.h>

#include "verdict/envelope.h"

/* The mixture of e * p^(e - 1) over e in (0, 1): (1 - p + p ln p) / (p ln^2 p). */
static double bet(double p)
{
    double l = log(p);
    if (p > 0.999)
        return 0.5;
    return (1 - p + p * l) / (p * l * l);
}

double martingale_log_wealth(const double *y, size_t n)
{
    double prior = 1.0 / ENVELOPE_SLOTS, wealth = 0, log_scale = 0;
    /* The test's wealth is the product of the variable WEALTH and e^LOG_SCALE, because the wealth
     * of a long leak would overflow a double. */
    for (size_t k = 0; k < n; k++) {
        size_t at_least = 1;
        for (size_t j = 0; j < k; j++)
            at_least += y[j] >= y[k]; /* a tie counts as larger, so the p-value is conservative */
        wealth = (wealth + prior * exp(-log_scale)) * bet((double)at_least / (double)(k + 1));
        if (wealth > 1e100) {
            wealth *= 1e-100;
            log_scale += log(1e100);
        }
    }
    /* Adds the part of the initial wealth that has not been bet on any onset yet. */
    wealth += (1 - prior * (double)n) * exp(-log_scale);
    return wealth > 0 ? log(wealth) + log_scale : -HUGE_VAL;
}

double martingale_log_threshold(double alpha, uint32_t level, uint32_t phase)
{
    double l = level, p = phase;
    return log(1 / alpha) + log((l + 1) * (l + 2)) + log((p + 1) * (p + 2));
}
