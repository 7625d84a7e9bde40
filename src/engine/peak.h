/* The peak of a job's memory and the memory to request for it: one definition for the summary,
 * run.json, the report and the job server. docs/run-json.md explains it to users. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { PEAK_TICKS = 64 };

struct peak_tick {
    uint64_t low_bytes, high_bytes; /* as proc_tree_memory has them */
    uint64_t unmeasured_bytes;      /* see peak_died */
};

struct peak {
    /* of the job's own cgroup */
    bool is_charged;
    uint64_t usage_bytes, used_bytes; /* at the last reading */
    uint64_t charged_bytes;           /* the most that the kernel could not have reclaimed */
    /* of its processes */
    uint64_t resident_bytes; /* the largest lower bound of the tree, or a larger single process */
    uint64_t bound_bytes;    /* the same, with unmeasured memory counted in full */
    uint64_t mapped_bytes;   /* the most that was mapped from files */
    uint64_t ticks;
    struct peak_tick recent[PEAK_TICKS]; /* the newest ticks, in a ring */
};

/* One reading of the job's cgroup: its usage, what of it cannot be reclaimed, and the most that the
 * usage was since the reading before (0: unknown). Between two readings only the usage is known to
 * have been that high; the excess counts as memory that cannot be reclaimed. The error is at most
 * the file cache that came or went between the two. */
void peak_charge(struct peak *p, uint64_t usage_bytes, uint64_t used_bytes, uint64_t most_bytes);
/* One tick of the tree. MAPPED_BYTES is the sum of what its processes have mapped from files.
 * !IS_MEASURED: unique memory is never read, so that the upper bound is all there is. */
void peak_tree(struct peak *p, uint64_t low_bytes, uint64_t high_bytes, uint64_t mapped_bytes,
               bool is_measured);
/* A process of the job that held BYTES in all (VmHWM, ru_maxrss). */
void peak_process(struct peak *p, uint64_t bytes);
/* A process has ended, BYTES of whose memory had come since its unique memory was last measured, or
 * all of it where that never was: those count in full from tick FROM on. */
void peak_died(struct peak *p, uint64_t from, uint64_t bytes);
/* What others have read of the same: of the cgroup where the job has one, else of the tree. */
void peak_raise(struct peak *p, uint64_t bytes);
/* Begins anew with the job's next segment, in the same cgroup. */
void peak_restart(struct peak *p);

/* The most memory that the job held at one time; 0: nothing is known. */
uint64_t peak_bytes(const struct peak *p);
/* Memory to request for such a job; 0: nothing is known. */
uint64_t peak_request_bytes(const struct peak *p);
