/* How long the newest steps took, from their marks. The step time, wherever ebb shows or uses one,
 * is their median: a slow step (an evaluation, a checkpoint) does not move it. Pure: no clock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { STEP_TIMES = 32 };

/* Zeroed is a valid beginning. */
struct step_times {
    uint64_t last_ns;
    int64_t last_step;
    bool has_step;
    bool is_interrupted; /* since the last step: that time is not a step's */
    uint64_t ns[STEP_TIMES];
    uint32_t count; /* measured so far; the newest are kept */
};

/* A step mark. The same step again (from another rank) changes nothing, one that goes backwards
 * starts the clock anew. */
void step_times_mark(struct step_times *t, uint64_t now_ns, int64_t step);
/* The step time; false while no step was measured. */
bool step_times_median_ns(const struct step_times *t, uint64_t *ret);
/* How long the present step may still take: nine steps in ten take less. Not the step time, but
 * what the guard has to expect before a job can answer. False while fewer than 3 were measured. */
bool step_times_slow_ns(const struct step_times *t, uint64_t *ret);
