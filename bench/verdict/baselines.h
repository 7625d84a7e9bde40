/* Common leak detectors, for comparison. They use the unfiltered samples up to the current time:
 * all of them or, if the cost is quadratic, at most 240. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum baseline {
    /* The minimum of the last 10 samples exceeds that of the first 10 by more than 1 %. */
    BASELINE_FIRST_LAST = 0,
    BASELINE_OLS,     /* The slope is positive with p < 0.01. */
    BASELINE_MK,      /* Mann-Kendall, p < 0.01 */
    BASELINE_MK_HR,   /* Mann-Kendall with the variance of Hamed and Rao. */
    BASELINE_R2,      /* The linear fit has R2 >= 0.8 and a positive slope. */
    BASELINE_PREDICT, /* predict_linear over 15 min reaches the limit within 4 h. */
    BASELINES
};
const char *baseline_name(enum baseline b);
/* X is in seconds. LIMIT <= 0: unknown. */
bool baseline_says_leak(enum baseline b, const double *t, const double *y, size_t n, double limit);
