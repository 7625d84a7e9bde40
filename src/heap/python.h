/* Reads this thread's Python frames without the GIL, and hooks the interpreter's allocator of small
 * objects. python_layout.c describes the memory layout of each Python version. A layout is verified
 * against the running interpreter before it is used. */
#pragma once

#include "heap/heap.h"

struct python_frame {
    /* HEAP_FRAME_PYTHON | code | instruction. 0 for an evaluation loop that has not entered its
     * function yet: the loop is on the C stack, but no Python frame exists. */
    uint64_t word;
    /* True if C code called the function. The frames of its callers then belong to an outer
     * evaluation loop on the C stack. */
    bool is_entry;
};

/* Detects the interpreter, its version, and whether its frames can be read. Called for every sample
 * and every arena; once the result is final, a call costs almost nothing. Also hooks the allocator
 * of small objects if that is requested and this thread holds the GIL. */
void python_detect(void);
/* Reads this thread's frames, innermost first, and returns their number. Returns 0 if the thread
 * has no frames or its frames are not readable. */
size_t python_frames(struct python_frame *ret, size_t max);
/* Returns true if the interpreter is shutting down. During the shutdown it frees everything, even
 * leaked memory. */
bool python_is_ending(void);
/* Returns true if IP is inside the interpreter's evaluation loop. */
bool python_is_eval(uintptr_t ip);
/* Returns the interpreter's module, in the form of modules_find. Returns MODULE_NONE before
 * python_detect. */
uint32_t python_module(void);
/* Returns true if an mmap call with this return address maps an arena whose objects are counted
 * individually. */
bool python_owns_map(uintptr_t return_address);
/* Detects the interpreter and hooks its small objects now. The caller's thread holds the GIL.
 * Returns true if the objects are hooked. */
bool python_attach(void);
/* Removes the hooks. The caller holds the GIL. Returns false if another tool has wrapped the
 * hooks. */
bool python_detach(void);
void python_reset(void); /* forgets modules and code objects, for a new table */
