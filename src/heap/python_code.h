/* Code objects: each is copied into the table when it is first seen, for it may die. */
#pragma once

#include <stdint.h>

#include "heap/python_layout.h"
#include "heap/python_symbols.h"

enum { PYTHON_CODE_UNKNOWN = 0 }; /* the first entry of the table: no name, no file */

/* The index in the table of the code object at CODE, which lives; PYTHON_CODE_UNKNOWN: no room, or
 * another thread was adding one for too long. */
uint32_t python_code_index(uintptr_t code, const struct python_layout *l,
                           const struct python_symbols *symbols);
void python_code_reset(void); /* a new table */
