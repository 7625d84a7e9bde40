/* Definitions shared by the parts of the preloaded library. The library runs inside the job, in
 * every allocation. It therefore never allocates, never takes the GIL, never sends a signal, never
 * writes to a descriptor of the job, and never keeps a descriptor open. Allocations that are not
 * sampled take no lock. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap/table.h"

#define HEAP_LIKELY(x) __builtin_expect(!!(x), 1)
#define HEAP_UNLIKELY(x) __builtin_expect(!!(x), 0)
/* Attribute of variables on the hot path: the code addresses them without the GOT. */
#define HEAP_HIDDEN __attribute__((visibility("hidden")))

/* Per-thread state in initial-exec TLS. All zeros is a valid state, and the state stays valid after
 * the thread's destructors have run. */
struct heap_thread {
    /* bytes until the next sample; once it is below 0, the slow path decides whether to sample */
    int64_t countdown;
    int64_t drawn;   /* initial value of the countdown */
    uint64_t random; /* state of the random number generator, or 0 before it is seeded */
    /* State of the random number generator for GPU blocks, which have no countdown. */
    uint64_t gpu_random;
    uint64_t interval; /* sampling interval from which the countdown was drawn */
    /* While this is above 0, the thread is running the library, or a signal handler that
     * interrupted the library. No samples are taken then. */
    uint32_t busy;
    /* If this is above 0, the mappings of this thread are not counted. */
    uint32_t no_maps;
    uintptr_t stack_end; /* highest address of this thread's stack, or 0 while unknown */
    uintptr_t stack_low; /* the stack is known to be mapped down to this address */
};
_Static_assert(sizeof(struct heap_thread) <= 256, "initial-exec TLS is scarce");

extern __thread struct heap_thread heap_thread HEAP_HIDDEN
    __attribute__((tls_model("initial-exec")));

/* The heap table of this process and its settings. */
struct heap_process {
    /* Table of this process; NULL before it is created and after it is closed. */
    struct heap_table *table;
    _Atomic(uint32_t) state; /* enum heap_state */
    uint64_t base_interval;  /* requested sampling interval in bytes */
    bool wants_python_small;
    /* pid of ebb; a process whose parent is ebb creates its table when it starts */
    uint64_t parent;
    /* Number of seccomp filters that do not count as a sandbox: those of ebb or, if ebb attached to
     * this process, those that the process had at that time. A process with more filters is
     * sandboxed. */
    uint64_t filters;
    /* 1 after the job has set up a sandbox; the library then makes no system calls. */
    _Atomic(uint32_t) is_confined;
};
enum heap_state {
    HEAP_OFF = 0, /* EBB_HEAP is 0, there is no socket, libc is not glibc, or profiling failed */
    HEAP_WAITING, /* the table is created with the first sample */
    HEAP_ON,
};
extern struct heap_process heap_process HEAP_HIDDEN;

static inline void heap_drop(enum heap_drop kind)
{
    struct heap_table *t = heap_process.table;
    if (t)
        HEAP_ADD(t->header.drops[kind], 1);
}

/* Reads the clock through the vDSO, without a system call. */
uint64_t heap_clock_ns(void);
/* Reserves N consecutive numbers from the counter *USED and sets *RET to the first. If fewer than N
 * numbers below END are left, returns false and reserves nothing. */
bool heap_take(_Atomic(uint32_t) *used, uint32_t n, uint32_t end, uint32_t *ret);
/* Takes a lock that is held for microseconds only; to release the lock, store 0. Returns false if
 * another thread still holds the lock after SPINS checks. Such a thread has been preempted. */
static inline bool heap_spin(_Atomic(uint32_t) *lock, int spins)
{
    for (int i = 0; i < spins; i++) {
        uint32_t is_free = 0;
        if (atomic_compare_exchange_weak_explicit(lock, &is_free, 1, memory_order_acquire,
                                                  memory_order_relaxed))
            return true;
#ifdef __x86_64__
        __builtin_ia32_pause();
#endif
    }
    return false;
}

/* Zeroes LEN bytes of whole pages in .bss. Uses MADV_DONTNEED if system calls are permitted, so
 * that pages that were never written do not take up memory. Not thread-safe. Preserves errno. */
void heap_zero(void *pages, size_t len);
/* Copies LEN bytes into the text section. If the section is full, counts a drop and returns {0,
 * 0}. */
struct heap_text heap_text_add(struct heap_table *t, const void *bytes, size_t len);
