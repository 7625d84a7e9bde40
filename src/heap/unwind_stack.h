/* How much of the memory around a stack pointer is safe to read. */
#pragma once

#include "heap/heap.h"

struct unwind_extent {
    uintptr_t low, high; /* readable */
    bool may_grow;       /* upwards, page by page, by asking the kernel */
};

/* The stack that SP is on: to its end if it is this thread's own, else what is left of its page. */
struct unwind_extent unwind_extent(struct heap_thread *t, uintptr_t sp);
/* Makes *e reach TO, if all up to there is readable and not too far away. */
bool unwind_grow(struct unwind_extent *e, uintptr_t to);

/* Other frames' variables are meant to be read here, whatever a sanitizer thinks of it. */
__attribute__((no_sanitize("address", "thread"))) static inline uintptr_t
unwind_word_at(uintptr_t address)
{
    return *(const volatile uintptr_t *)address;
}

/* The word at ADDRESS, if it is in the extent or that can grow so far. */
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
