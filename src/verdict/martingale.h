/* The anytime-valid test behind the live alarm. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Natural logarithm of the wealth after N block minima Y, betting on each being among the largest
 * so far, from every possible onset with equal prior weight. */
double martingale_log_wealth(const double *y, size_t n);

/* The level it must reach for a false-alarm probability ALPHA over a whole run, when this is the
 * LEVEL-th doubling of the blocks and the PHASE-th restart: the budget is spread over all of them,
 * since each begins a new test. */
double martingale_log_threshold(double alpha, uint32_t level, uint32_t phase);
