/* The durations of the newest steps, computed from their marks. The "step time" that ebb shows and
 * uses is their median, so one slow step (an evaluation, a checkpoint) does not change it. Reads no
 * clock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { STEP_TIMES = 32 };

/* A zeroed struct is ready for the first step. */
struct step_times {
    uint64_t last_ns;
    int64_t last_step;
    bool has_step;
    /* training was interrupted after the last step, so the time until the next step is not
     * measured */
    bool is_interrupted;
    uint64_t ns[STEP_TIMES];
    uint32_t count; /* number of steps measured so far; only the newest durations are kept */
};

/* Adds a step mark. A repeated step (from another rank) changes nothing. A step number lower than
 * the last one starts the measurement again. */
void step_times_mark(struct step_times *t, uint64_t now_ns, int64_t step);
/* Gets the step time. Returns false if no step was measured yet. */
bool step_times_median_ns(const struct step_times *t, uint64_t *ret);
/* Gets the 90th percentile of the step durations: the time that the current step may still take
 * before the job can answer a request. Returns false while fewer than 3 steps were measured. */
bool step_times_slow_ns(const struct step_times *t, uint64_t *ret);
