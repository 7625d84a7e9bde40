/* A mark that stands for several steps in a row (STEPS=20), taken apart: who sends them that fast
 * spares itself nineteen datagrams, and whoever reads the marks need not know. */
#pragma once

#include <stddef.h>

#include "mark/mark.h"

enum { MARK_ROW_MAX = 256 };

/* How many steps M stands for, its own the last: STEPS= of a mark of kind step. 1 where it has
 * none, or one that is no number, more than MARK_ROW_MAX, or more than there were steps. */
size_t mark_row_length(const struct mark *m);
/* The mark of step I, from 0, of the LENGTH that M stands for, as if it had come alone. They ended
 * at even distances within SECONDS=, the last at M's time. EPOCH is known of the last only. Its
 * text is written into TEXT. */
void mark_row_at(const struct mark *m, size_t length, size_t i, char text[MARK_TEXT_MAX],
                 struct mark *ret);
