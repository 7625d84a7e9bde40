/* The step clock: turns the job's marks into those that verdicts are made of. It maps their kinds,
 * keeps what was sent once, and finds the ends of epochs where no mark reports them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"
#include "verdict/mark.h"

/* Zeroed is a valid beginning. */
struct mark_clock {
    bool has_begun, has_step, has_epoch, has_epoch_marks;
    uint64_t step;
    double epoch;
    uint64_t steps_per_epoch, examples, batch, max_steps; /* 0: unknown */
    uint64_t guessed_steps;                               /* an epoch's, by the last EPOCH= */
    uint64_t seen_ns[VERDICT_MARK_KINDS];   /* when a mark of the kind last came … */
    uint64_t seen_step[VERDICT_MARK_KINDS]; /* … and at which step */
    bool has_seen[VERDICT_MARK_KINDS];
};

enum { MARK_CLOCK_MARKS = 2 };
/* Adds MARK; returns the number of marks it makes for a verdict, 0 to MARK_CLOCK_MARKS. */
size_t mark_clock_add(struct mark_clock *c, const struct mark *mark,
                      struct verdict_mark ret[MARK_CLOCK_MARKS]);
/* The same without state, for one rank of several. False: no mark for a verdict. */
bool mark_clock_map(const struct mark *mark, struct verdict_mark *ret);
