/* How long steps and checkpoints take and by how much memory rises during a checkpoint: from marks
 * and acknowledgements. Pure: no clock, no I/O. */
#pragma once

#include <stdint.h>

#include "mark/step_times.h"

struct tempo {
    struct step_times steps;
    uint64_t save_begun_ns; /* 0: none under way */
    uint64_t save_start_bytes, save_peak_bytes;
    uint32_t saves;           /* measured */
    double save_s;            /* the longest so far */
    uint64_t save_rise_bytes; /* the largest so far */
};

/* A step mark: step_times_mark, but the time of a checkpoint is not a step's. */
void tempo_step(struct tempo *t, uint64_t now_ns, int64_t step);
/* A checkpoint begins with BYTES in use (a begun one is not begun again), memory goes on being
 * read, it ends. */
void tempo_save_begin(struct tempo *t, uint64_t now_ns, uint64_t bytes);
void tempo_memory(struct tempo *t, uint64_t bytes);
void tempo_save_end(struct tempo *t, uint64_t now_ns);
void tempo_save_failed(struct tempo *t); /* it counts for nothing */
/* A new segment: what takes how long stays known, what is under way does not. */
void tempo_segment(struct tempo *t);
