/* The anytime-valid test behind the live alarm. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Returns the natural logarithm of the wealth after N block minima Y. The test bets that memory
 * grows, which means that each minimum is among the largest so far. The wealth is divided equally
 * among bets that begin at each possible onset. */
double martingale_log_wealth(const double *y, size_t n);

/* Returns the log wealth required for a false-alarm probability ALPHA over a whole run, after
 * LEVEL doublings of the block width and PHASE restarts. Each doubling or restart begins a new
 * test, so ALPHA is spread over all of them. */
double martingale_log_threshold(double alpha, uint32_t level, uint32_t phase);
