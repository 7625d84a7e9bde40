/* The memory required by earlier runs of the same command, from their run folders. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Maximum number of runs that are used, newest first; older runs may be of another version of the
 * program. */
enum { EARLIER_RUNS = 50 };

struct earlier {
    size_t runs;
    /* memory per node that would have been enough for 98 % of these runs, with a margin */
    uint64_t bytes;
};

/* Reads the runs with the same name and command as RUN, which is a run folder or the folder of a
 * job on several nodes. They are all in the folder that contains RUN, usually "ebb-runs". RUN
 * itself and later runs are not left out. Runs that leaked or failed are, because their peak
 * depends on when they ended. */
void earlier_read(const char *run, struct earlier *ret);
/* Sorts N values and returns their 98th percentile; of fewer than 50 values, this is the largest.
 * The job server applies the same rule to the last runs of the same name. */
uint64_t earlier_percentile(uint64_t *values, size_t n);
