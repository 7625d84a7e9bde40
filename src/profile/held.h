/* Whether what the processes of a run held, by the samples of the profiler, grew to the end: a
 * second witness for the verdict on jobs that told nothing themselves. */
#pragma once

#include "profile/profile.h"
#include "verdict/verdict.h"

/* A process that did. */
struct held {
    int32_t pid;
    uint64_t start_ns; /* of its table */
    struct verdict_held grown;
};

/* The job of P is over and ended by itself: did what P held grow to the end? */
bool held_grew(const struct profile *p, struct verdict_held *ret);
/* All that did in the run folder at PATH; the caller frees it. NULL: none, or PATH is no folder. */
struct held *held_read(const char *path, size_t *ret_count);
