/* How long a step and a checkpoint take and by how much memory rises during one: from marks and
 * acknowledgements. Pure: no clock, no I/O. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum { TEMPO_STEPS = 32 };

struct tempo {
    uint64_t last_step_ns;
    int64_t last_step;
    bool has_step;
    bool has_saved;             /* since the last step: that time is not the step's */
    double step_s[TEMPO_STEPS]; /* seconds a step, the newest */
    uint32_t steps;             /* of them, in all */
    uint64_t save_begun_ns;     /* 0: none under way */
    uint64_t save_start_bytes, save_peak_bytes;
    uint32_t saves;           /* measured */
    double save_s;            /* the longest so far */
    uint64_t save_rise_bytes; /* the largest so far */
};

/* A step mark. The same step again (of another rank) changes nothing, one that goes backwards
 * starts the clock anew. */
void tempo_step(struct tempo *t, uint64_t now_ns, int64_t step);
/* A checkpoint begins with BYTES in use (a begun one is not begun again), memory goes on being
 * read, it ends. */
void tempo_save_begin(struct tempo *t, uint64_t now_ns, uint64_t bytes);
void tempo_memory(struct tempo *t, uint64_t bytes);
void tempo_save_end(struct tempo *t, uint64_t now_ns);
void tempo_save_failed(struct tempo *t); /* it counts for nothing */
/* Seconds a step takes: the slowest tenth of the newest, so that most are faster. False while fewer
 * than 3 are known. */
bool tempo_step_s(const struct tempo *t, double *ret);
/* A new segment: what takes how long stays known, what is under way does not. */
void tempo_segment(struct tempo *t);
