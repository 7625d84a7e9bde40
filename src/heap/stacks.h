/* Stores each stack once, as a tree of frames in the heap table; lock-free, append-only. */
#pragma once

#include "heap/heap.h"

/* Returns the call site of the stack of N frame words, outermost first. A new stack loses its
 * outermost frames when three quarters of the tree are in use, and the innermost ones that do
 * not fit when the tree is full (both are counted). When there are too many call sites, it is
 * site 0. */
uint32_t stacks_site(const uint64_t *frames, size_t n);
/* Add to the bytes that SITE has allocated or freed. */
void stacks_allocated(uint32_t site, uint64_t size, double probability);
void stacks_freed(uint32_t site, uint64_t size, double probability);
void stacks_reset(void); /* empties the index for a new table, which must exist already */
