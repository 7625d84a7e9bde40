/* Determines how much memory around a stack pointer is safe to read. */
#pragma once

#include "heap/heap.h"

struct unwind_extent {
    uintptr_t low, high; /* range of readable addresses; high is exclusive */
    bool may_grow;       /* true if probing may extend the range upwards, page by page */
};

/* Returns true if the 8 bytes at ADDRESS can be read, using one system call without side
 * effects. */
bool unwind_is_readable(uintptr_t address);
/* Returns the readable range that starts at SP. It ends at the end of the stack if SP is on this
 * thread's own stack, otherwise at the end of SP's page. */
struct unwind_extent unwind_extent(struct heap_thread *t, uintptr_t sp);
/* Extends *e to TO, if TO is not too far away and all memory up to TO is readable. */
bool unwind_grow(struct unwind_extent *e, uintptr_t to);

/* Sanitizers are disabled for this function, because it reads other functions' variables on
 * purpose. */
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
