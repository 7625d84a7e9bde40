/* When memory reaches the limit, as an interval. */
#pragma once

struct forecast_oom {
    double low, high; /* in units of the slope's x axis; high may be INFINITY */
};

/* First passage of a drifting level through ROOM above it, as a 90 % interval. SLOPE, its standard
 * error SLOPE_SE and DIFFUSION (variance of the level) are per x. PEAK_LOW and PEAK_HIGH: smallest
 * and largest spike to keep headroom for. LEVEL_SE: standard error of the present level. */
struct forecast_oom forecast_first_passage(double room, double slope, double slope_se,
                                           double diffusion, double peak_low, double peak_high,
                                           double level_se);

/* The inverse Gaussian distribution function, and its quantile for 0 < P < 1. */
double forecast_ig_cdf(double t, double mean, double shape);
double forecast_ig_quantile(double p, double mean, double shape);
