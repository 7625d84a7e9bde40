/* Until when the processes of a run worked, and whether what they held, by the samples of the
 * profiler, grew to that end: a second witness for the verdict on jobs that told nothing
 * themselves. */
#pragma once

#include "profile/profile.h"
#include "verdict/verdict.h"

struct held {
    int32_t pid;
    uint64_t start_ns;  /* of its table */
    uint64_t worked_ns; /* it was at work then, and no reading after shows it so */
    bool has_grown;
    struct verdict_held grown;
};

/* The job of P is over and ended by itself: did what P held grow to the end? */
bool held_grew(const struct profile *p, struct verdict_held *ret);
/* Of all that have ended in the run folder at PATH; the caller frees it. NULL: none, or PATH is no
 * folder. */
struct held *held_read(const char *path, size_t *ret_count);
