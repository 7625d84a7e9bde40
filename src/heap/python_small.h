/* In front of pymalloc: small Python objects share the countdown of malloc, and the arenas in which
 * they lie are counted. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "heap/python_symbols.h"

/* The interpreter was found: where it maps its arenas from. */
void python_small_found(const struct python_symbols *symbols);
/* Puts itself in front when that can be done now, if it is wanted. MINE is the state of this
 * thread. Cheap once it is settled. */
void python_small_install(const struct python_symbols *symbols, const void *mine);
bool python_small_is_on(void);
/* Bytes of the arenas that were mapped since it is on and that are still there. */
uint64_t python_small_arena_bytes(void);
