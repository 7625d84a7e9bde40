/* Native frames of this thread: call frame information found by _dl_find_object, interpreted once
 * per address and kept in a lock-free cache of rules; where a rule is too rare to be worth it
 * (DWARF expressions) or memory is not surely the stack's, the way ends, or gcc's unwinder goes it.
 */
#pragma once

#include "heap/heap.h"

struct unwind_frame {
    uintptr_t ip;    /* of the call: return address less 1 */
    uintptr_t base;  /* of its module */
    uint32_t module; /* as modules_find gives it */
};

/* The frames above the caller of the hook, innermost first, at most MAX: how many. Reads nothing
 * outside the thread's own stack. *ret_whole: the outermost frame was reached. */
size_t unwind_here(struct unwind_frame *ret, size_t max, bool *ret_whole);
/* The highest address of this thread's stack (exclusive); 0: not known, as on a stack of the
 * program's own making. */
uintptr_t unwind_stack_end(struct heap_thread *t, uintptr_t sp);
void unwind_reset(void);
