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
    /* the job's own cgroup */
    bool is_charged;
    uint64_t usage_bytes, used_bytes; /* at the last reading */
    uint64_t charged_bytes;           /* peak of unreclaimable memory */
    /* the job's processes */
    uint64_t resident_bytes; /* the largest lower bound of the tree, or the peak of a single process
                                if that is larger */
    uint64_t bound_bytes;    /* the same, but with unmeasured memory counted in full */
    uint64_t mapped_bytes;   /* peak of memory mapped from files */
    uint64_t ticks;
    struct peak_tick recent[PEAK_TICKS]; /* the newest ticks, in a ring buffer */
};

/* Takes a reading of the job's cgroup: its usage, the unreclaimable part, and the peak of the usage
 * since the last reading (0: unknown). At that peak the unreclaimable part is unknown, so all of
 * the excess counts as unreclaimable. The error is at most the change of the file cache between two
 * readings. */
void peak_charge(struct peak *p, uint64_t usage_bytes, uint64_t used_bytes, uint64_t most_bytes);
/* Takes a tick of the tree. MAPPED_BYTES is the sum of memory mapped from files. If not
 * IS_MEASURED, unique memory is never read, and only the upper bound is known. */
void peak_tree(struct peak *p, uint64_t low_bytes, uint64_t high_bytes, uint64_t mapped_bytes,
               bool is_measured);
/* Takes the peak of one process (VmHWM, ru_maxrss). */
void peak_process(struct peak *p, uint64_t bytes);
/* Takes the exit of a process. BYTES were allocated since its unique memory was last measured, or
 * in total if never: they count in full from tick FROM on. */
void peak_died(struct peak *p, uint64_t from, uint64_t bytes);
/* Takes a reading by the guard: of the cgroup if the job has one, else of the tree. */
void peak_raise(struct peak *p, uint64_t bytes);
/* To be called when the next segment begins, in the same cgroup. */
void peak_restart(struct peak *p);

/* The highest memory of the job at one time; 0: unknown. */
uint64_t peak_bytes(const struct peak *p);
/* Suggested memory request; 0: unknown. */
uint64_t peak_request_bytes(const struct peak *p);
