/* Which job starts next. Pure: no I/O, no clock.
 *
 * Jobs are looked at by priority, then by age. One that cannot start yet keeps what it waits for: a
 * later one may start only where that leaves the earlier one no worse off, so that small jobs pass
 * a large one where they do not take its place, and nobody waits for ever but behind others of a
 * higher priority. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLAN_GPUS_MAX = 64 };

struct plan_room {
    unsigned slots;        /* in all */
    uint64_t memory_bytes; /* for all jobs together; 0: not limited */
    unsigned gpus;         /* in all, at most PLAN_GPUS_MAX */
    /* in use by jobs that run */
    unsigned slots_used;
    uint64_t memory_used;
    uint64_t gpus_used; /* bits */
};

struct plan_job {
    int64_t id;
    int priority;
    uint64_t memory_bytes; /* 0: not known, counts nothing */
    unsigned gpus;
    bool waits; /* for jobs before it, or held: takes no place in the queue */
};

enum plan_why {
    PLAN_STARTS,
    PLAN_WAITS_AFTER,
    PLAN_WAITS_SLOT,
    PLAN_WAITS_MEMORY,
    PLAN_WAITS_GPU,
    PLAN_WAITS_TURN, /* it would fit, but for an earlier one */
    PLAN_NEVER       /* more than there is at all */
};
struct plan_verdict {
    enum plan_why why;
    uint64_t gpus; /* bits, of one that starts */
};

/* JOBS in any order (fastest in that of the queue: priority, then id); RET has an entry for each,
 * in the same order. At most one starts per call: the first that can. */
void plan_next(const struct plan_room *room, const struct plan_job *jobs, size_t count,
               struct plan_verdict *ret);
/* "waits for memory: 24.0 GiB wanted, 11.2 of 58.0 GiB free" */
void plan_sentence(const struct plan_room *room, const struct plan_job *job,
                   const struct plan_verdict *verdict, char *ret, size_t size);
