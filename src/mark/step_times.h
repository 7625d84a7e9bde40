/* Durations of the newest steps, from their marks. The step time, wherever ebb shows or uses one,
 * is their median: a slow step (an evaluation, a checkpoint) does not change it. Pure: no clock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { STEP_TIMES = 32 };

/* A zeroed struct has measured no steps. */
struct step_times {
    uint64_t last_ns;
    int64_t last_step;
    bool has_step;
    /* interrupted since the last step, so the time until the next mark is not a step time */
    bool is_interrupted;
    uint64_t ns[STEP_TIMES];
    uint32_t count; /* number of steps measured so far; only the newest are kept */
};

/* Adds a step mark. The same step again (from another rank) changes nothing; a lower step restarts
 * the clock. */
void step_times_mark(struct step_times *t, uint64_t now_ns, int64_t step);
/* The step time; false if no step was measured yet. */
bool step_times_median_ns(const struct step_times *t, uint64_t *ret);
/* The 90th percentile of step durations: how long the guard must expect the current step to take
 * before the job can answer. False while fewer than 3 steps were measured. */
bool step_times_slow_ns(const struct step_times *t, uint64_t *ret);
