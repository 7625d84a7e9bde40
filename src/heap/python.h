/* Python seen from inside its allocations: frames of this thread without its lock, and its own
 * allocator of small objects. The layouts are in python_layout.c, a table by
 * version, checked against the running interpreter before it is believed. */
#pragma once

#include "heap/heap.h"

struct python_frame {
    uint64_t word; /* HEAP_FRAME_PYTHON | code | instruction; 0: an evaluation that has not begun
                      its function: no frame, but a loop on the C stack */
    bool is_entry; /* called from C: below it on the C stack is an evaluation of its own */
};

/* Looks whether there is an interpreter by now, of which version, and whether its frames can be
 * read; called on the sampled way and for arenas, cheap once it is settled. Puts itself in front of
 * the allocator of small objects when that is wanted and this thread holds the lock. */
void python_look(void);
/* This thread's frames, innermost first; 0: none or not readable. */
size_t python_frames(struct python_frame *ret, size_t max);
/* Does the interpreter end? It then lets go of everything, leaks too. */
bool python_is_ending(void);
/* Is IP within the interpreter's loop? */
bool python_is_eval(uintptr_t ip);
/* The module with the interpreter in it, as modules_find gives it; MODULE_NONE before python_look.
 */
uint32_t python_module(void);
/* True if mappings made from RETURN_ADDRESS are arenas of objects that are counted one by one. */
bool python_owns_map(uintptr_t return_address);
void python_reset(void); /* a new table: codes are noted anew */
