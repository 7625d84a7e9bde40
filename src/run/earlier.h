/* The memory that earlier runs of the same command needed, from their run folders. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* maximum number of runs that are used, the newest first; older ones may be of another version */
enum { EARLIER_RUNS = 50 };

struct earlier {
    size_t runs;
    /* memory per node that would have been enough for 98 % of these runs, with a margin */
    uint64_t bytes;
};

/* Reads the runs and jobs beside RUN, a run folder in "ebb-runs" or the folder of a job on several
 * nodes, that have its name and command. Runs that leaked or failed are not used, because their
 * peak depends on when they ended. */
void earlier_read(const char *run, struct earlier *ret);
/* Sorts N values and returns their 98th percentile, which is the largest of fewer than 50 values.
 * The job server applies the same rule to the last runs of a name. */
uint64_t earlier_percentile(uint64_t *values, size_t n);
