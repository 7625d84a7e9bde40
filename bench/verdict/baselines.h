/* The detectors people use today, for comparison. Each looks at the raw readings so far. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum baseline {
    BASELINE_FIRST_LAST = 0, /* lowest of the last 10 above lowest of the first 10 by over 1 % */
    BASELINE_OLS,            /* slope > 0 at p < 0.01 */
    BASELINE_MK,             /* Mann-Kendall, p < 0.01 */
    BASELINE_MK_HR,          /* the same with Hamed and Rao's variance */
    BASELINE_R2,             /* linear fit with R2 >= 0.8, rising */
    BASELINE_PREDICT,        /* predict_linear over 15 min reaches the limit within 4 h */
    BASELINES
};
const char *baseline_name(enum baseline b);
/* X in seconds. LIMIT <= 0: none is known. */
bool baseline_says_leak(enum baseline b, const double *t, const double *y, size_t n, double limit);
