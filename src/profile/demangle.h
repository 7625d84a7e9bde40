/* Demangles C++ names. */
#pragma once

#include <stddef.h>

struct buf;

enum { DEMANGLE_MAX = 2048 }; /* longer names are truncated and end in "…" */

/* Appends the demangled NAME to OUT, or NAME itself if it is not a C++ name. */
void demangle(struct buf *out, const char *name);
/* Finds the function's own name in a demangled name: "std::vector<int>::reserve" in "void
 * std::vector<int>::reserve(unsigned long)". *ret_len is its length. */
const char *demangle_bare(const char *readable, size_t *ret_len);
