/* Small rows that were reached from one function of the user's become one. For growth.c alone. */
#pragma once

#include <stddef.h>

struct names;
struct tallies;
struct tally;

/* Of the COUNT judged ROWS those that grow, or may for all that sampling tells, and are small
 * beside what grows in all: where several share the innermost function of the program's own, they
 * become one, the one that grew most. Returns how many took others in; these come first in ROWS and
 * are to be judged again, those that were taken in are gone from it. */
size_t merge_small(struct tallies *t, struct names *names, struct tally **rows, size_t *count);
