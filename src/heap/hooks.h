/* What the hooks share: the functions they stand in front of, and the way to a sample. Only in
 * libebb-heap.so. */
#pragma once

#include <sys/types.h>

#include "heap/heap.h"

#define HOOK __attribute__((visibility("default")))
#define HOOKS_COLD __attribute__((noinline, cold))

/* The next functions of these names after ours. The first group is never NULL: until they are
 * looked up there are functions that do so, or serve from a small arena meanwhile. The others are
 * NULL until hooks_look, and afterwards where the process has none. */
struct hooks_real {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    _Atomic(void (*)(void *)) free; /* changes once more if the arena was needed */

    size_t (*malloc_usable_size)(void *); /* NULL also if it is not the allocator's own */
    int (*posix_memalign)(void **, size_t, size_t);
    void *(*aligned_alloc)(size_t, size_t);
    void *(*memalign)(size_t, size_t);
    void *(*valloc)(size_t);
    void *(*pvalloc)(size_t);
    void *(*mmap)(void *, size_t, int, int, int, off_t);
    int (*munmap)(void *, size_t);
    void *(*mremap)(void *, size_t, size_t, int, ...);
    int (*dlclose)(void *);
    int (*prctl)(int, ...);
    long (*syscall)(long, ...);
};
extern struct hooks_real hooks_real;

/* Looks them up if that was not done yet. False: it is being done just now, below us or in another
 * thread; waiting for that one could be for ever, for it needs the dynamic linker's lock. */
bool hooks_look(void);
/* Is ADDRESS in the module that has the next malloc? */
bool hooks_is_allocator(const void *address);
/* From what dlsym gives to what can be called. */
#define HOOKS_FUNCTION(type, p) ((type)(uintptr_t)(p))

/* Takes SIZE from this thread's countdown. False: there is not so much left, or SIZE is more than
 * any allocation can be; nothing is taken, and hooks_sample is to be asked. */
static inline bool hooks_count(size_t size)
{
    int64_t left = (int64_t)((uint64_t)heap_thread.countdown - size);
    if (HEAP_UNLIKELY((left | (int64_t)size) < 0))
        return false;
    heap_thread.countdown = left;
    return true;
}

/* After hooks_count said no and SIZE bytes of the block P were allocated (or were not: NULL). The
 * block as a whole is TOTAL bytes. Preserves errno. */
void hooks_sample(void *p, size_t size, size_t total, enum heap_kind kind);
/* After a library was unloaded: operator new and delete may have been in it. */
void hooks_new_unloaded(void);
