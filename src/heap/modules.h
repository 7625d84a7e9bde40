/* The libraries of this process: from an address to its module, with its build-id, in the table. */
#pragma once

#include "heap/heap.h"

enum { MODULE_NONE = 0 }; /* else the index + 1 */

/* The module that holds IP and its load bias; MODULE_NONE: none, or no room. Notes a module at
 * first sight. No lock, no allocation. */
uint32_t modules_find(uintptr_t ip, uintptr_t *ret_base);
/* A library was or may have been unloaded (dlclose): what is mapped where may change. */
void modules_changed(void);
uint32_t modules_generation(void);
void modules_reset(void); /* a new table */
/* The frame word of a native frame. */
uint64_t modules_frame(uint32_t module, uintptr_t base, uintptr_t ip);
