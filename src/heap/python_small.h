/* Hooks pymalloc, Python's allocator of small objects. Small objects share malloc's countdown, and
 * the bytes of their arenas are counted separately. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "heap/python_symbols.h"

/* Records the address of the code that maps arenas. To be called when the interpreter is found. */
void python_small_found(const struct python_symbols *symbols);
/* Installs the wrappers if they are requested and can be installed now. MINE is the Python state of
 * this thread. After the first success or refusal, calls cost almost nothing. */
void python_small_install(const struct python_symbols *symbols, const void *mine);
/* Removes the wrappers, so that they may be installed again. The caller holds the GIL. Returns
 * false if another tool, such as tracemalloc, has wrapped the wrappers; they then stay installed
 * and forward every call. */
bool python_small_remove(const struct python_symbols *symbols);
bool python_small_is_on(void);
/* Returns the bytes of live arenas that were mapped since the wrappers were installed. */
uint64_t python_small_arena_bytes(void);
