/* C++ names as a person would write them. */
#pragma once

#include <stddef.h>

struct buf;

enum { DEMANGLE_MAX = 2048 }; /* a longer name is cut, with "…" at its end */

/* Appends NAME in readable form to OUT, or as it is where it is no C++ name. */
void demangle(struct buf *out, const char *name);
/* Where the function's own name begins in a readable one, after its return type if it has one, and
 * how long it is without parameters: "std::vector<int>::reserve" of
 * "void std::vector<int>::reserve(unsigned long)". */
const char *demangle_bare(const char *readable, size_t *ret_len);
