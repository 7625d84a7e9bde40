/* The peak of a job's memory and the suggested memory request, defined once for the summary,
 * run.json, the report and the job server (docs/reference/run-json.md). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { PEAK_TICKS = 64 };

struct peak_tick {
    uint64_t low_bytes, high_bytes; /* from proc_tree_memory */
    uint64_t unmeasured_bytes;      /* see peak_died */
};

struct peak {
    /* Readings of the job's own cgroup, if is_charged is set. */
    bool is_charged;
    /* last reading of the usage, and of its unreclaimable part */
    uint64_t usage_bytes, used_bytes;
    uint64_t charged_bytes; /* peak of the unreclaimable memory */
    /* lower bound of the peak: the highest lower bound for the process tree, or the highest peak of
     * one process if that is higher */
    uint64_t resident_bytes;
    /* upper bound of the peak: all unmeasured memory is treated as unshared */
    uint64_t bound_bytes;
    uint64_t mapped_bytes; /* peak of the memory mapped from files */
    uint64_t ticks;
    struct peak_tick recent[PEAK_TICKS]; /* the newest ticks, in a ring buffer */
};

/* Adds a reading of the job's cgroup: its usage, the unreclaimable part (USED_BYTES), and the peak
 * of the usage since the last reading (0 if unknown). The part of the peak above USAGE_BYTES is
 * treated as unreclaimable, because its nature is unknown. The resulting error is at most the
 * change in file cache between two readings. */
void peak_charge(struct peak *p, uint64_t usage_bytes, uint64_t used_bytes, uint64_t most_bytes);
/* Adds a tick of the process tree. MAPPED_BYTES is the sum of memory mapped from files. IS_MEASURED
 * is false if unique memory is never measured; then only the upper bound is known. */
void peak_tree(struct peak *p, uint64_t low_bytes, uint64_t high_bytes, uint64_t mapped_bytes,
               bool is_measured);
/* Adds the peak of one process (VmHWM, ru_maxrss). */
void peak_process(struct peak *p, uint64_t bytes);
/* Adds the exit of a process. BYTES is memory of the process whose sharing was never measured: what
 * it allocated after the last measurement of its unique memory, or all of its memory. The upper
 * bounds for tick FROM and all later ticks include BYTES, as if it were unshared. */
void peak_died(struct peak *p, uint64_t from, uint64_t bytes);
/* Adds a reading that the guard took of the job's cgroup or, if there is none, of the job's process
 * tree. */
void peak_raise(struct peak *p, uint64_t bytes);
/* Call this when the next segment of the job begins in the same cgroup. */
void peak_restart(struct peak *p);

/* Returns the largest amount of memory that the job had at any one time; 0 if unknown. */
uint64_t peak_bytes(const struct peak *p);
/* Returns the suggested memory request; 0 if unknown. */
uint64_t peak_request_bytes(const struct peak *p);
