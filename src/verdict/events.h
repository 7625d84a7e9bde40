/* Growth that comes with an event: jumps at evaluations, checkpoints and epochs that stay. */
#pragma once

#include <stdbool.h>

#include "verdict/verdict.h"

struct events_steps {
    enum verdict_mark_kind kind;
    unsigned count;
    double jump_bytes;   /* mean */
    double share;        /* of the growth from after the first to after the last … */
    double share_needed; /* … and what it must be */
    double total_bytes;
};
/* The kind of event that explains growth best, if one explains most of it; NOISE is the deviation
 * of a reading, MATERIAL the growth that counts. */
bool events_find_steps(const struct verdict_series *v, double noise, double material,
                       struct events_steps *ret);
