/* Forecasts when memory will reach the limit, as an interval. */
#pragma once

struct forecast_oom {
    double low, high; /* interval in units of the slope's x axis; high may be INFINITY */
};

/* Forecasts the time until a growing level has risen by ROOM. LOW is the 10 % quantile of this time
 * if the largest spike is added to the level; HIGH is the 90 % quantile if the smallest spike is
 * added. SLOPE, its standard error SLOPE_SE and DIFFUSION (variance of the level) are per unit of
 * x. PEAK_LOW and PEAK_HIGH are the heights of the smallest and the largest spike. LEVEL_SE is the
 * standard error of the present level. */
struct forecast_oom forecast_first_passage(double room, double slope, double slope_se,
                                           double diffusion, double peak_low, double peak_high,
                                           double level_se);

/* Distribution function of the inverse Gaussian distribution, and its quantile for 0 < P < 1. */
double forecast_ig_cdf(double t, double mean, double shape);
double forecast_ig_quantile(double p, double mean, double shape);
