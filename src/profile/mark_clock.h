/* The job's marks as the marks that verdicts are made of: kinds mapped, what was told once kept,
 * the ends of epochs found where no mark tells them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"
#include "verdict/verdict.h"

/* Zeroed is a valid beginning. */
struct mark_clock {
    bool has_begun, has_step, has_epoch, has_epoch_marks;
    uint64_t step;
    double epoch;
    uint64_t steps_per_epoch, examples, batch, max_steps; /* 0: not told */
    uint64_t guessed_steps;                               /* an epoch's, by the last EPOCH= */
    uint64_t seen_ns[VERDICT_MARK_KINDS];   /* when a mark of the kind last came … */
    uint64_t seen_step[VERDICT_MARK_KINDS]; /* … and at which step */
    bool has_seen[VERDICT_MARK_KINDS];
};

enum { MARK_CLOCK_MARKS = 2 };
/* What MARK means: how many marks it makes, none to MARK_CLOCK_MARKS. */
size_t mark_clock_hear(struct mark_clock *c, const struct mark *mark,
                       struct verdict_mark ret[MARK_CLOCK_MARKS]);
/* The same without a memory, for one rank of several. False: nothing to judge by. */
bool mark_clock_map(const struct mark *mark, struct verdict_mark *ret);
