/* Translates the job's marks into the marks that verdicts use. Maps the kinds of marks, remembers
 * values that the job sends only once, and finds the ends of epochs that the job does not
 * report. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"
#include "verdict/mark.h"

/* A zeroed struct is ready for the first mark. */
struct mark_clock {
    bool has_begun, has_step, has_epoch, has_epoch_marks;
    uint64_t step;
    double epoch;
    uint64_t steps_per_epoch, examples, batch, max_steps; /* 0: unknown */
    uint64_t guessed_steps;                 /* steps per epoch, derived from the last EPOCH= */
    uint64_t seen_ns[VERDICT_MARK_KINDS];   /* time of the last mark of each kind */
    uint64_t seen_step[VERDICT_MARK_KINDS]; /* step of the last mark of each kind */
    bool has_seen[VERDICT_MARK_KINDS];
};

enum { MARK_CLOCK_MARKS = 2 };
/* Adds MARK and translates it. Returns the number of resulting marks for a verdict, 0 to
 * MARK_CLOCK_MARKS. */
size_t mark_clock_add(struct mark_clock *c, const struct mark *mark,
                      struct verdict_mark ret[MARK_CLOCK_MARKS]);
/* Like mark_clock_add but without state, for one rank of several. Returns false if verdicts do not
 * use marks of this kind. */
bool mark_clock_map(const struct mark *mark, struct verdict_mark *ret);
