/* The simulated day that day.c records: its duration and its processes. */
#pragma once

#include <stdint.h>

#define DAY_MIB (UINT64_C(1) << 20)
#define DAY_GIB (UINT64_C(1) << 30)

enum {
    DAY_START_S = 100, /* Start of the day in seconds on the recording's clock. */
    DAY_TICKS = 86400, /* Number of ticks in the day, one per second. */
    DAY_STEP_S = 2,
    DAY_EPOCH_STEPS = 1800,
    DAY_SEGMENTS = 2, /* The guard restarts the job at noon. */
    DAY_MAIN_PID = 4000,
};

/* Memory leaked in each step. */
#define DAY_LEAK_BYTES (UINT64_C(200) << 10)

/* Writes heap.PID.ebbheap in DIRFD: hundreds of call sites, deep stacks, and one site that grows,
 * for TICKS seconds from second FROM of the day on. */
void day_heap(int dirfd, int32_t pid, unsigned from, unsigned ticks);
