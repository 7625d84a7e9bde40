/* Stacks, each stored once, as a tree of frames in the table; lock-free, append-only. */
#pragma once

#include "heap/heap.h"

/* The site of the stack of N frame words, OUTERMOST first. A new one loses its outermost frames
 * when three quarters of the tree are full, and the innermost that have no place when all of it is
 * (both counted); when there are too many sites it is site 0. */
uint32_t stacks_site(const uint64_t *frames, size_t n);
/* Adds to what SITE has allocated, or to what of it was freed. */
void stacks_allocated(uint32_t site, uint64_t size, double probability);
void stacks_freed(uint32_t site, uint64_t size, double probability);
void stacks_reset(void); /* a new table, which is there by now */
