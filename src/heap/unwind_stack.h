/* Determines how much memory around a stack pointer is safe to read. */
#pragma once

#include "heap/heap.h"

struct unwind_extent {
    uintptr_t low, high; /* readable */
    bool may_grow;       /* upwards, page by page, by probing */
};

/* Returns whether the 8 bytes at ADDRESS can be read, by one system call without effect. */
bool unwind_is_readable(uintptr_t address);
/* Returns the stack that SP is on: up to its end if it is this thread's, else the rest of its
 * page. */
struct unwind_extent unwind_extent(struct heap_thread *t, uintptr_t sp);
/* Extends *e to TO, if everything up to there is readable and not too far away. */
bool unwind_grow(struct unwind_extent *e, uintptr_t to);

/* Reads other functions' variables on purpose, so sanitizers are disabled here. */
__attribute__((no_sanitize("address", "thread"))) static inline uintptr_t
unwind_word_at(uintptr_t address)
{
    return *(const volatile uintptr_t *)address;
}

/* Reads the word at ADDRESS, if it is in the extent or the extent can grow to it. */
static inline bool unwind_read(struct unwind_extent *e, uintptr_t address, uintptr_t *ret)
{
    if (HEAP_UNLIKELY(address % sizeof(uintptr_t) != 0 || address < e->low))
        return false;
    if (HEAP_UNLIKELY(address > e->high - sizeof(uintptr_t)) &&
        !unwind_grow(e, address + sizeof(uintptr_t)))
        return false;
    *ret = unwind_word_at(address);
    return true;
}
