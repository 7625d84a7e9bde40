/* Unwinds the native frames of this thread. Call frame information is found by _dl_find_object,
 * interpreted once per address and stored in a lock-free cache of rules. The walk ends at code
 * without such information (assembly, code generated at run time) or with rules too rare to be
 * cached (DWARF expressions, other registers). gcc's unwinder is not used instead: if a program
 * registers frames at run time, gcc's unwinder allocates while it holds a lock, which deadlocks
 * inside malloc. */
#pragma once

#include "heap/heap.h"

struct unwind_frame {
    uintptr_t ip;    /* address of the call, which is the return address less 1 */
    uintptr_t base;  /* load bias of the module that contains ip */
    uint32_t module; /* module number as returned by modules_find */
};

/* Stores at most MAX frames of this thread's stack, innermost first, and returns their number. The
 * first frame is that of the hook's caller, because this library's own frames are left out. In unit
 * tests the library is part of the program; there only this function's own frame is left out. Reads
 * nothing outside this thread's stacks. *ret_whole is true if the outermost frame was reached. A
 * walk that ends before the outermost frame for a reason other than MAX is counted
 * (HEAP_DROP_UNWIND). */
size_t unwind_here(struct unwind_frame *ret, size_t max, bool *ret_whole);
/* Prefetches the rules for these frames into the processor's cache, because the next stack probably
 * has the same outer frames. */
void unwind_expect(const struct unwind_frame *frames, size_t n);
/* Returns the highest address of this thread's stack (exclusive). All memory from SP up to this
 * address is readable. Returns 0 if the address is unknown, or if SP is on another stack, for
 * example one that the program created. The system calls used have no side effects; a sandboxed
 * process makes no system calls. */
uintptr_t unwind_stack_end(struct heap_thread *t, uintptr_t sp);
/* Forgets this thread's stack bounds after fork; the next walk looks them up again. */
void unwind_reset(void);
