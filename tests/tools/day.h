/* The simulated day that day.c records: its duration and its processes. */
#pragma once

#include <stdint.h>

#define DAY_MIB (UINT64_C(1) << 20)
#define DAY_GIB (UINT64_C(1) << 30)

enum {
    DAY_START_S = 100, /* Start of the day on the recording's clock, in seconds. */
    DAY_TICKS = 86400, /* Sampling ticks in the day, one per second. */
    DAY_STEP_S = 2,
    DAY_EPOCH_STEPS = 1800,
    DAY_SEGMENTS = 2, /* The guard restarts the job once, at noon. */
    DAY_MAIN_PID = 4000,
};

/* Memory leaked per step. */
#define DAY_LEAK_BYTES (UINT64_C(200) << 10)

/* Writes heap.PID.ebbheap into DIRFD for TICKS seconds, beginning at second FROM of the day. The
 * history has hundreds of call sites with deep stacks; one site grows. */
void day_heap(int dirfd, int32_t pid, unsigned from, unsigned ticks);
