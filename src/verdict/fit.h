/* Least squares on a window of the envelope: straight lines, saturating curves, and the linear
 * growth that remains in addition to the best saturating curve. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { FIT_MAX = 128 }; /* largest number of points in a fit */
/* Prefix sums of x and y, which give the line through any window in O(1). */
struct fit_sums {
    double x0, y0; /* offsets subtracted from all points before summing, for precision */
    double sx[FIT_MAX + 1], sy[FIT_MAX + 1], sxx[FIT_MAX + 1], sxy[FIT_MAX + 1], syy[FIT_MAX + 1];
};

struct fit_line {
    double slope;
    double at_end; /* value of the line at the last x of its window */
    double rms;    /* root mean square of the line's residuals */
    double span;   /* length of the fitted window in x */
};

void fit_sums_build(struct fit_sums *s, const double *x, const double *y, size_t n);
/* Fits a line to the points FROM <= i < TO. Returns zeros for fewer than 2 points or if all have
 * the same x. */
struct fit_line fit_sums_line(const struct fit_sums *s, const double *x, size_t from, size_t to);

/* Returns the lag-1 autocorrelation of a line's residuals, clipped to [0, 0.95]. */
double fit_line_rho(const double *x, const double *y, size_t n, const struct fit_line *line);
/* Returns the effective number of independent points, n (1 - rho) / (1 + rho), at least 3. */
double fit_effective(size_t n, double rho);

enum fit_shape { FIT_NONE, FIT_EXP, FIT_LOG, FIT_RAMP, FIT_STEP, FIT_POWER };

/* Quality of fit of each family of curves. Slopes are per unit of x. */
struct fit_separation {
    double n_eff;
    /* Bayesian information criterion of each family; lower is better. */
    double bic_flat, bic_line, bic_power, bic_end, bic_both;
    enum fit_shape end_shape;
    double end_param;   /* parameter of the best saturating curve, as a fraction of the window */
    double power_param; /* exponent of the best power of x */
    double both_slope;  /* slope of the line fitted together with the best saturating curve */
    double both_slope_se;
    enum fit_shape both_shape;
    double both_param;
};
/* Fits all families of curves to N <= FIT_MAX points. FLOOR_RMS is added in quadrature to the root
 * mean square of the residuals, so that tiny residuals do not decide between families. */
void fit_separate(const double *x, const double *y, size_t n, double floor_rms,
                  struct fit_separation *ret);

/* The Theil-Sen slope with an interval of Z standard deviations of Kendall's S, whose variance is
 * multiplied by n / n_eff to allow for autocorrelation. Uses at most 64 points. */
struct fit_sen {
    double slope, low, high;
};
bool fit_theil_sen(const double *x, const double *y, size_t n, double n_eff, double z,
                   struct fit_sen *ret);

/* Returns the median of N values, or 0 if N is 0. Reorders VALUES. */
double fit_median(double *values, size_t n);
/* Returns the K-th smallest of N values. Reorders A. */
double fit_select(double *a, size_t n, size_t k);
/* Estimates the standard deviation of the noise from second differences, which hardly depend on
 * smooth trends. */
double fit_noise(const double *x, const double *y, size_t n);
