/* What the parts of the preloaded library share. It runs inside somebody else's program, in front
 * of every allocation: nothing here allocates, locks on the unsampled way, takes Python's lock,
 * sends a signal, writes to a descriptor of the job's, or keeps a descriptor of its own open. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap/table.h"

#define HEAP_LIKELY(x) __builtin_expect(!!(x), 1)
#define HEAP_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* For variables that the hot way reads: without it, their address is looked up each time. */
#define HEAP_HIDDEN __attribute__((visibility("hidden")))

/* One a thread, in initial-exec TLS: zeroed is valid, and stays so after the thread's destructors.
 */
struct heap_thread {
    int64_t countdown;   /* bytes to the next sample; the slow way is taken below 0 */
    uint64_t random;     /* state; 0: not seeded, the first slow way does it */
    uint64_t interval;   /* under which the countdown was drawn */
    uint32_t busy;       /* > 0: within the library (or a signal handler above it): no samples */
    uint32_t no_maps;    /* > 0: a mapping made now is the arena of something already counted */
    uintptr_t stack_end; /* highest address of this thread's stack; 0: not looked up yet */
    uintptr_t stack_low; /* down to where it is known to be one stretch of memory */
};
_Static_assert(sizeof(struct heap_thread) <= 256, "little initial-exec TLS is there for all");

extern __thread struct heap_thread heap_thread HEAP_HIDDEN
    __attribute__((tls_model("initial-exec")));

/* The table of this process, and what the whole library needs to know. */
struct heap_process {
    struct heap_table *table; /* NULL: there is none (yet), or no more */
    _Atomic(uint32_t) state;  /* enum heap_state */
    uint64_t base_interval;   /* bytes */
    bool wants_python_small;
    uint64_t parent;  /* pid; a child of it makes its table when it starts */
    uint64_t filters; /* of system calls, on ebb: a process with more of them is in a sandbox */
    _Atomic(uint32_t) is_confined; /* no system calls of ours: the job has asked for a sandbox */
};
enum heap_state {
    HEAP_OFF = 0, /* EBB_HEAP=0, no socket, not glibc, or given up */
    HEAP_WAITING, /* will make its table with the first sample */
    HEAP_ON,
};
extern struct heap_process heap_process HEAP_HIDDEN;

static inline void heap_drop(enum heap_drop kind)
{
    struct heap_table *t = heap_process.table;
    if (t)
        atomic_fetch_add_explicit(&t->header.drops[kind], 1, memory_order_relaxed);
}

/* vDSO, no system call. */
uint64_t heap_clock_ns(void);
/* Takes N numbers from *USED on, all below END: the first of them. False: they are not there, and
 * nothing is taken. */
bool heap_take(_Atomic(uint32_t) *used, uint32_t n, uint32_t end, uint32_t *ret);
/* Zeroes whole pages of .bss, by giving them back where a system call is allowed: what was never
 * touched stays so. For one thread alone. Preserves errno. */
void heap_zero(void *pages, size_t len);
/* Copies LEN bytes into the text section: where they are, or {0, 0} and a drop counted. */
struct heap_text heap_text_add(struct heap_table *t, const void *bytes, size_t len);
