/* The trend of one series as numbers: input of the verdict model. All values except bytes and
 * seconds are dimensionless, so scaling all bytes does not change them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct verdict_series;
struct view;

struct trend {
    bool known; /* false: too few readings; no other field is valid */
    bool by_step;
    double slots;   /* number of envelope blocks */
    double seconds; /* length of the window; 0: unknown */
    double base;    /* bytes: the baseline at the beginning … */
    double growth;  /* … and its growth by the end */
    /* Growth in the last part of the window relative to an even rate: 1 while growth continues, 0
     * once it has stopped. */
    double third, sixth;
    double forecast; /* forecast growth over another window of this length, bytes, averaged over all
                        curve families */
    double lasting;  /* log evidence for continuing growth over growth that ends */
    double rough;    /* deviation from a straight line, over the growth */
    double net;      /* growth over the sum of all movements, up and down */
    double fallen;   /* largest fall below a maximum, over the growth */
    double epochs;   /* length of the window in epochs; 0: unknown */
    double pace;     /* growth rate after the first epoch over that within it; 1: unknown */
    double events;   /* part of the growth that came at evaluations, checkpoints and epoch ends */
};

/* The trend of a series, by step where it has steps. */
void trend_of(const struct verdict_series *v, struct trend *ret);
/* The trend of N <= FIT_MAX readings at ascending X. EPOCH: epoch length in units of X; 0:
 * unknown. */
void trend_of_points(const double *x, const double *y, size_t n, double epoch, struct trend *ret);
