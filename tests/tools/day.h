/* The made-up day that day.c records: how long its parts are, and of whom. */
#pragma once

#include <stdint.h>

#define DAY_MIB (UINT64_C(1) << 20)
#define DAY_GIB (UINT64_C(1) << 30)

enum {
    DAY_START_S = 100, /* on the clock of the recording */
    DAY_TICKS = 86400, /* one a second */
    DAY_STEP_S = 2,
    DAY_EPOCH_STEPS = 1800,
    DAY_SEGMENTS = 2, /* the guard starts the job again at noon */
    DAY_MAIN_PID = 4000,
};

/* What is kept of each step. */
#define DAY_LEAK_BYTES (UINT64_C(200) << 10)

/* heap.PID.ebbheap in DIRFD: hundreds of call sites, deep stacks, and one site that grows, from the
 * second FROM of the day on for TICKS seconds. */
void day_heap(int dirfd, int32_t pid, unsigned from, unsigned ticks);
