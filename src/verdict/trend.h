/* Numbers that describe the trend of one series; they are the input of the verdict model. All
 * values except bytes and seconds are dimensionless, and stay the same if all sizes are multiplied
 * by a constant. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct verdict_series;
struct view;

struct trend {
    bool known; /* false if there are too few readings; then no other field is valid */
    bool by_step;
    double slots;   /* number of envelope blocks */
    double seconds; /* length of the window in seconds, or 0 if unknown */
    double base;    /* baseline at the start of the window in bytes */
    double growth;  /* growth of the baseline over the window in bytes */
    /* Growth in the last third and sixth of the window relative to steady growth: 1 while growth
     * continues, 0 once it has stopped. */
    double third, sixth;
    /* Growth in bytes expected in another window of this length, averaged over all families of
     * curves. */
    double forecast;
    double lasting; /* log evidence for continuing growth against growth that ends */
    double rough;   /* RMS deviation from a straight line, as a fraction of the growth */
    double net;     /* growth as a fraction of the sum of all movements, up and down */
    /* Largest lead of the baseline over steady growth, as a fraction of the growth: 0 for steady or
     * late growth, almost 1 for a single jump at the start. */
    double ahead;
    double fallen; /* largest fall below a maximum, as a fraction of the growth */
    double epochs; /* length of the window in epochs, or 0 if unknown */
    /* Growth rate after the first epoch relative to the rate within it, or 1 if unknown. */
    double pace;
    /* Fraction of the growth that occurred at evaluations, checkpoints and epoch ends. */
    double events;
};

/* Computes the trend of a series, by step if it has steps. */
void trend_of(const struct verdict_series *v, struct trend *ret);
/* Computes the trend of N <= FIT_MAX readings at ascending X. EPOCH is the epoch length in units
 * of X, or 0 if unknown. */
void trend_of_points(const double *x, const double *y, size_t n, double epoch, struct trend *ret);
