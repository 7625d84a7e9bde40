/* Growth tied to events: memory that jumps at evaluations, checkpoints or epoch ends and stays
 * up. */
#pragma once

#include <stdbool.h>

#include "verdict/verdict.h"

struct events_steps {
    enum verdict_mark_kind kind;
    unsigned count;
    unsigned readings; /* step ends read from the first event to the last */
    bool is_close;     /* few readings lie between two events */
    double jump_bytes; /* mean jump */
    double
        share; /* part of the growth between the first and the last event that came at events … */
    double share_even;   /* … the part expected there if growth were even … */
    double share_needed; /* … and the part required for a verdict */
    double total_bytes;
};
/* Finds the kind of event that explains most of the growth, if any. NOISE: standard deviation of a
 * reading; MATERIAL: smallest growth that counts. */
bool events_find_steps(const struct verdict_series *v, double noise, double material,
                       struct events_steps *ret);

/* The same for growth that is already known to be a leak: finds whether it occurs at events or
 * between them. */
bool events_hold_growth(const struct verdict_series *v, double noise, double material,
                        struct events_steps *ret);
