/* Definitions shared by the hooks: the functions that they wrap, and the sampling of allocations.
 * Used only in libebb-heap.so. */
#pragma once

#include <sys/types.h>

#include "heap/heap.h"

#define HOOK __attribute__((visibility("default")))
#define HOOKS_COLD __attribute__((noinline, cold))

/* The functions that the hooks wrap: for each hook, the next definition after this library's own.
 * The first group is never NULL: until hooks_resolve has run, it holds functions that call
 * hooks_resolve or allocate from a small arena. The other groups are NULL until then, and a
 * function that the process lacks stays NULL. */
struct hooks_real {
    void *(*malloc)(size_t);
    void *(*calloc)(size_t, size_t);
    void *(*realloc)(void *, size_t);
    /* atomic, because the pointer is also replaced when the arena is first used */
    _Atomic(void (*)(void *)) free;

    /* Also NULL if the function is not defined in the allocator's module. */
    size_t (*malloc_usable_size)(void *);
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
extern struct hooks_real hooks_real HEAP_HIDDEN;

/* Looks up the wrapped functions, once. Returns false if a look-up is in progress, further up this
 * thread's stack or in another thread. Does not wait for the other thread, because waiting could
 * deadlock on the dynamic linker's lock. */
bool hooks_resolve(void);
/* Like hooks_resolve, but calls FIND to look up each name. */
typedef void *hooks_find_fn(const char *name);
bool hooks_resolve_by(hooks_find_fn *find);
/* Returns true if ADDRESS is in the module that defines the real malloc. */
bool hooks_is_allocator(const void *address);
/* Converts the object pointer that dlsym returns to a function pointer. */
#define HOOKS_FUNCTION(type, p) ((type)(uintptr_t)(p))

/* Subtracts SIZE from this thread's countdown and returns true. If the countdown is below SIZE, or
 * if SIZE is larger than any possible allocation, subtracts nothing and returns false. The caller
 * then calls hooks_sample. */
static inline bool hooks_count(size_t size)
{
    int64_t left = (int64_t)((uint64_t)heap_thread.countdown - size);
    if (HEAP_UNLIKELY((left | (int64_t)size) < 0))
        return false;
    heap_thread.countdown = left;
    return true;
}

/* Samples the block P after hooks_count returned false. SIZE is the number of newly allocated
 * bytes, and TOTAL is the size of the whole block. P is NULL if the allocation failed. Preserves
 * errno. */
void hooks_sample(void *p, size_t size, size_t total, enum heap_kind kind);
/* Looks up operator new and delete again. To be called after dlclose, because the closed library
 * may have defined them. */
void hooks_new_unloaded(void);
/* Discards the addresses of torch's functions. To be called after dlclose, because the closed
 * library may have defined them. */
void hooks_gpu_unloaded(void);
