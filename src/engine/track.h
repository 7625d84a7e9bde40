/* The history of one series in about 1.4 KiB: first, mean, peak, last, the floor over
 * time, its rate, and the newest readings for a sparkline. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TRACK_BLOCKS = 64, TRACK_RECENT = 32 };

/* Block minima in a fixed pyramid: when all blocks are used, pairs merge and a block spans twice
 * the time, so any length of run fits. */
struct track {
    uint64_t samples;
    uint64_t first_ns, last_ns;
    uint64_t first_bytes; /* once start-up is over: the last reading of the first second */
    uint64_t last_bytes, peak_bytes, least_bytes;
    uint64_t from_ns;  /* the floor is looked at from here on; 0: from a tenth of the run on */
    uint64_t until_ns; /* and up to here; 0: to the newest */
    double sum_bytes;  /* for the mean */
    uint64_t block_ns; /* span of one block now */
    uint64_t block_start_ns;
    uint32_t blocks; /* used, the open one included */
    uint64_t block_min[TRACK_BLOCKS];
    uint64_t block_t_ns[TRACK_BLOCKS]; /* when that minimum was seen */
    uint64_t recent[TRACK_RECENT];     /* ring of the newest, one each RECENT_NS */
    uint64_t recent_ns;                /* when the newest entered */
    uint32_t recent_count;             /* ever entered */
};

void track_add(struct track *t, uint64_t t_ns, uint64_t bytes);
/* A peak that was seen by other means (VmHWM). */
void track_raise_peak(struct track *t, uint64_t bytes);
uint64_t track_mean(const struct track *t);
/* Where the floor was at first and at last: the median of the block minima in the first and in the
 * last fifth of what is looked at, so that neither start-up nor the end decides. False without
 * samples. */
bool track_floor(const struct track *t, uint64_t *ret_first, uint64_t *ret_last);
/* Median slope of the floor (Theil–Sen over the block minima), bytes a minute. False with under
 * 8 blocks or 3 s: too little to say. */
bool track_rate(const struct track *t, double *ret_bytes_per_min);
/* The newest readings, oldest first: how many. */
size_t track_recent(const struct track *t, uint64_t ret[TRACK_RECENT]);
