/* The durations of steps and checkpoints, and the memory that a checkpoint needs, measured from
 * marks and acknowledgements. Reads no clock and does no I/O. */
#pragma once

#include <stdint.h>

#include "mark/step_times.h"

struct timing {
    struct step_times steps;
    uint64_t save_begun_ns; /* time at which the checkpoint in progress began, or 0 */
    uint64_t save_start_bytes, save_peak_bytes;
    uint32_t saves;           /* number of measured checkpoints */
    double save_s;            /* longest duration of a checkpoint so far */
    uint64_t save_rise_bytes; /* largest additional memory of a checkpoint so far */
};

/* Like step_times_mark, but excludes steps during which a checkpoint was written. */
void timing_step(struct timing *t, uint64_t now_ns, int64_t step);
/* These functions measure one checkpoint. Call timing_save_begin when a checkpoint begins; BYTES is
 * the memory in use at that time. timing_save_begin is ignored while another checkpoint is being
 * written. Call timing_memory for each memory reading, and timing_save_end when the checkpoint
 * ends. */
void timing_save_begin(struct timing *t, uint64_t now_ns, uint64_t bytes);
void timing_memory(struct timing *t, uint64_t bytes);
void timing_save_end(struct timing *t, uint64_t now_ns);
void timing_save_failed(struct timing *t); /* discards the measurement in progress */
/* Call this when a new segment starts: keeps the measured durations, and discards the measurement
 * of an unfinished checkpoint. */
void timing_segment(struct timing *t);
