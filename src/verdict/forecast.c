/* First passage times of a growing level: the inverse Gaussian distribution, widened by the
 * uncertainty of the slope. */
#include "verdict/forecast.h"

#include <math.h>

static double normal_cdf(double z)
{
    return 0.5 * erfc(-z / sqrt(2));
}

double forecast_ig_cdf(double t, double mean, double shape)
{
    double r, a, b, tail;
    if (!(t > 0))
        return 0;
    r = sqrt(shape / t);
    a = r * (t / mean - 1);
    b = -r * (t / mean + 1);
    /* exp(2 shape / mean) overflows where the normal tail underflows, so their product is computed
     * from logarithms. */
    if (b < -30)
        tail = exp(2 * shape / mean - 0.5 * b * b) / (-b * sqrt(2 * M_PI));
    else
        tail = exp(2 * shape / mean) * normal_cdf(b);
    return fmin(1, normal_cdf(a) + tail);
}

double forecast_ig_quantile(double p, double mean, double shape)
{
    double low = 0, high = mean;
    while (forecast_ig_cdf(high, mean, shape) < p && high < 1e6 * mean)
        high *= 2;
    for (int i = 0; i < 80; i++) {
        double mid = 0.5 * (low + high);
        if (forecast_ig_cdf(mid, mean, shape) < p)
            low = mid;
        else
            high = mid;
    }
    return 0.5 * (low + high);
}

/* Returns quantile P of the time until the level has risen by ROOM. */
static double passage(double p, double room, double slope, double slope_se, double diffusion,
                      double level_se)
{
    double mean, variance;
    if (room <= 0)
        return 0;
    if (slope <= 0)
        return HUGE_VAL;
    mean = room / slope;
    /* The inverse Gaussian distribution has the variance mean^3 / shape, with shape = room^2 /
     * diffusion. The errors of the slope and of the level add, to first order, the variance of the
     * estimated mean. */
    variance = mean * mean * mean * diffusion / (room * room) +
               mean * mean * (slope_se * slope_se) / (slope * slope) +
               level_se * level_se / (slope * slope);
    variance = fmax(variance, 1e-6 * mean * mean);
    return forecast_ig_quantile(p, mean, mean * mean * mean / variance);
}

struct forecast_oom forecast_first_passage(double room, double slope, double slope_se,
                                           double diffusion, double peak_low, double peak_high,
                                           double level_se)
{
    struct forecast_oom r;
    r.low = passage(0.1, room - peak_high, slope, slope_se, diffusion, level_se);
    r.high = passage(0.9, room - peak_low, slope, slope_se, diffusion, level_se);
    if (slope - 1.645 * slope_se <= 0)
        r.high = HUGE_VAL;
    return r;
}
