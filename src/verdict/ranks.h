/* Compares the ranks of one job. They run the same program on the same kind of data, so each is a
 * control for the others. If one rank grows while its peers stay flat, neither start-up nor a cache
 * of the program explains this. docs/internals/verdict.md has the statistic. */
#pragma once

#include "verdict/verdict.h"

/* The comparison of one rank with its peers. */
struct ranks_place {
    bool is_compared; /* false if the rank's growth rate is unknown or the rank has no peers */
    double rate;      /* growth rate in the unit of ranks_peers */
    double score;     /* robust z: distance of RATE above the median, in standard deviations */
    /* Log of the e-value against the hypothesis that this rank grows like its peers; never
     * negative. It is already corrected for choosing the worst of all ranks. */
    double log_evidence;
    bool differs; /* true if the rank grows faster than its peers; wrong in about 1 % of jobs */
};

/* The group of all compared ranks. */
struct ranks_peers {
    size_t count; /* number of ranks with a known growth rate */
    size_t flat;  /* number of ranks with a known growth rate whose own verdict is not a leak */
    bool by_step; /* true if rates are in bytes per step, not per minute */
    double median, spread; /* median and robust standard deviation of the growth rates */
};

/* Compares N ranks by their verdicts. SCRATCH has room for N values; PLACES receives N entries. The
 * order of the ranks does not matter, and all scores stay the same if every size is multiplied by a
 * constant. */
void ranks_compare(const struct verdict_result *const *results, size_t n, double *scratch,
                   struct ranks_peers *ret, struct ranks_place *places);

/* Returns the probability that a rank with verdict R leaks, given its PLACE among PEERS, or 0 if
 * the peers provide no evidence. They provide evidence if most of them are flat and R's rate is
 * certainly positive. The odds of R (1:1 if unknown) are then multiplied by the e-value. */
double ranks_probability(const struct verdict_result *r, const struct ranks_place *place,
                         const struct ranks_peers *peers);
/* Adds the comparison with the peers to R as its first evidence. */
void ranks_add_evidence(struct verdict_result *r, const struct ranks_place *place,
                        const struct ranks_peers *peers);
