/* Growth that comes with an event: jumps at evaluations, checkpoints and epochs that stay. */
#pragma once

#include <stdbool.h>

#include "verdict/verdict.h"

struct events_steps {
    enum verdict_mark_kind kind;
    unsigned count;
    unsigned readings;   /* from the first to the last */
    bool is_close;       /* few readings from one to the next */
    double jump_bytes;   /* mean */
    double share;        /* of the growth from after the first to after the last … */
    double share_even;   /* … what even growth puts there … */
    double share_needed; /* … and what it must be */
    double total_bytes;
};
/* The kind of event that explains growth best, if one explains most of it; NOISE is the deviation
 * of a reading, MATERIAL the growth that counts. */
bool events_find_steps(const struct verdict_series *v, double noise, double material,
                       struct events_steps *ret);

/* The same of growth that is known to be a leak: not whether each event brings some, but whether it
 * comes at the events or between them. What is no leak must not be asked. */
bool events_hold_growth(const struct verdict_series *v, double noise, double material,
                        struct events_steps *ret);
