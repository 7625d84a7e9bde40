/* When memory runs out, as an interval. */
#pragma once

struct forecast_oom {
    double low, high; /* in units of the slope's x; high may be INFINITY */
};

/* First passage of a drifting level through ROOM above it. SLOPE and SLOPE_SE per x, DIFFUSION the
 * variance of the level per x, PEAK_LOW and PEAK_HIGH the spike height to keep free at least and
 * at most, LEVEL_SE the uncertainty of the present level. 90 % interval. */
struct forecast_oom forecast_first_passage(double room, double slope, double slope_se,
                                           double diffusion, double peak_low, double peak_high,
                                           double level_se);

/* The inverse Gaussian distribution function, and its quantile for 0 < P < 1. */
double forecast_ig_cdf(double t, double mean, double shape);
double forecast_ig_quantile(double p, double mean, double shape);
