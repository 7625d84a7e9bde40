/* Native frames of this thread: call frame information found by _dl_find_object, interpreted once
 * per address and kept in a lock-free cache of rules. Where there is none (assembly, code made at
 * run time), or a rule too rare to be kept (DWARF expressions, other registers), the way ends.
 * gcc's unwinder is not asked then: with frames registered at run time it takes a lock and
 * allocates under it, which inside malloc is a deadlock. */
#pragma once

#include "heap/heap.h"

struct unwind_frame {
    uintptr_t ip;    /* of the call: return address less 1 */
    uintptr_t base;  /* of its module */
    uint32_t module; /* as modules_find gives it */
};

/* The frames above the caller of the hook, innermost first, at most MAX: how many. Those of this
 * library are left out at the inner end; where it is part of the program (unit tests), only its
 * own. Reads nothing outside the thread's own stack. *ret_whole: the outermost frame was reached;
 * a way that ended before that, other than by MAX, is counted (HEAP_DROP_UNWIND). */
size_t unwind_here(struct unwind_frame *ret, size_t max, bool *ret_whole);
/* The next stack is probably much like this one, in its outer part: brings nearer what unwind_here
 * will want to know of these frames. After other work all of it is far away, and each frame would
 * wait for its own. */
void unwind_expect(const struct unwind_frame *frames, size_t n);
/* The highest address of this thread's stack (exclusive), all readable from SP on; 0: SP is not on
 * it, as on a stack of the program's own making, or that cannot be known. Any system call it makes
 * has no effect, and there is none if the process is confined. */
uintptr_t unwind_stack_end(struct heap_thread *t, uintptr_t sp);
/* After fork: this thread is the only one, and its stack is looked up anew. */
void unwind_reset(void);
