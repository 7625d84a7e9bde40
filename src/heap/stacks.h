/* Stores each stack once, as a tree of frames in the heap table; lock-free, append-only. */
#pragma once

#include "heap/heap.h"

/* Returns the call site of the stack of N frame words, outermost first. If three quarters of the
 * tree are in use, a new stack is stored without its outermost frames. If the tree is full, the
 * stack ends at the last frame that fits, so its innermost frames are missing. Both cases are
 * counted as drops. If there are too many call sites, returns site 0. */
uint32_t stacks_site(const uint64_t *frames, size_t n);
/* Add a sample of SIZE bytes, taken with PROBABILITY, to the allocated or freed totals of SITE. */
void stacks_allocated(uint32_t site, uint64_t size, double probability);
void stacks_freed(uint32_t site, uint64_t size, double probability);
void stacks_reset(void); /* empties the index for a new table, which must exist already */
