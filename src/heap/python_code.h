/* Code objects of Python functions. Each is copied into the table when it is first seen, because
 * the interpreter may free it later. */
#pragma once

#include <stdint.h>

#include "heap/python_layout.h"
#include "heap/python_symbols.h"

enum { PYTHON_CODE_UNKNOWN = 0 }; /* the first entry of the table, which has no name and no file */

/* Returns the index in the table of the live code object at CODE. Returns PYTHON_CODE_UNKNOWN if
 * the table is full, or if another thread held the lock for too long. */
uint32_t python_code_index(uintptr_t code, const struct python_layout *l,
                           const struct python_symbols *symbols);
void python_code_reset(void); /* forgets all code objects, for a new table */
