/* Growth tied to events: memory that jumps at evaluations, checkpoints or epoch ends and stays
 * up. */
#pragma once

#include <stdbool.h>

#include "verdict/verdict.h"

struct events_steps {
    enum verdict_mark_kind kind;
    unsigned count;
    unsigned readings; /* number of readings at step ends from the first event to the last */
    bool is_close;     /* true if few readings lie between two events */
    double jump_bytes; /* mean jump */
    double
        /* fraction of the growth from the first event to the last that occurred at events */
        share;
    double share_even;   /* value of SHARE if growth were steady */
    double share_needed; /* smallest value of SHARE required for a verdict */
    double total_bytes;
};
/* Finds the kind of event that explains most of the growth, if any. NOISE is the standard deviation
 * of a reading, MATERIAL the smallest growth at events that is considered. */
bool events_find_steps(const struct verdict_series *v, double noise, double material,
                       struct events_steps *ret);

/* Like events_find_steps, for growth that is already known to be a leak: finds whether it occurs at
 * events or between them. */
bool events_hold_growth(const struct verdict_series *v, double noise, double material,
                        struct events_steps *ret);
