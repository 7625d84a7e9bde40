/* Splits a mark that reports several consecutive steps (STEPS=20) into single marks. Fast jobs send
 * one datagram instead of twenty, and code that reads marks sees single steps only. */
#pragma once

#include <stddef.h>

#include "mark/mark.h"

enum { MARK_ROW_MAX = 256 };

/* Returns the number of steps that M reports. For KIND=step marks this is the value of STEPS=, and
 * STEP is the number of the last of these steps. The result is 1 if STEPS= is missing, invalid,
 * more than MARK_ROW_MAX, or more than STEP. */
size_t mark_row_length(const struct mark *m);
/* Makes the mark of step I (from 0) of the LENGTH steps that M reports, as if that step had been
 * sent alone. The steps are spread evenly over SECONDS=, and the last step ends at M's time. Only
 * the last step has EPOCH. The mark's text is written into TEXT. */
void mark_row_at(const struct mark *m, size_t length, size_t i, char text[MARK_TEXT_MAX],
                 struct mark *ret);
