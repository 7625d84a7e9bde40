/* Looks up the functions that the hooks wrap, and allocates from a small arena during the
 * look-up. */
#include "heap/hooks.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>

#include "heap/life.h"
#include "heap/modules.h"

enum { ARENA_BYTES = 64 << 10, ALIGNMENT = 16 };
enum { RESOLVE_NOT_YET, RESOLVE_NOW, RESOLVE_DONE };

static _Atomic(int) resolve_state;
static uintptr_t allocator_start, allocator_end;

/* ---- arena for the allocations of dlsym, whose memory is never reused ---- */

static _Alignas(ALIGNMENT) char arena[ARENA_BYTES];
static _Atomic(size_t) arena_used;
static void (*next_free)(void *);
static void *(*next_realloc)(void *, size_t);

static bool is_in_arena(const void *p)
{
    return (uintptr_t)p - (uintptr_t)arena < ARENA_BYTES;
}

static void free_but_arena(void *p)
{
    if (!is_in_arena(p) && next_free)
        next_free(p);
}

/* Allocates from the arena. A block is preceded by its size. */
static void *arena_take(size_t size)
{
    atomic_store_explicit(&hooks_real.free, free_but_arena, memory_order_seq_cst);
    size_t want = size <= ARENA_BYTES ? ALIGNMENT + (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT
                                      : ARENA_BYTES + 1;
    size_t at = HEAP_LOAD(arena_used);
    do {
        if (want > ARENA_BYTES - at) {
            errno = ENOMEM;
            return NULL;
        }
    } while (!atomic_compare_exchange_weak(&arena_used, &at, at + want));
    memcpy(arena + at, &size, sizeof size);
    return arena + at + ALIGNMENT;
}

static void *realloc_but_arena(void *p, size_t size)
{
    if (!p || !is_in_arena(p))
        return next_realloc ? next_realloc(p, size) : arena_take(size);
    size_t old;
    memcpy(&old, (char *)p - ALIGNMENT, sizeof old);
    void *moved = hooks_real.malloc(size);
    if (moved)
        memcpy(moved, p, old < size ? old : size);
    return moved;
}

/* ---- functions that the hooks call until the real functions are looked up ---- */

static void *first_malloc(size_t size)
{
    return hooks_resolve() ? hooks_real.malloc(size) : arena_take(size);
}

static void *first_calloc(size_t n, size_t size)
{
    if (hooks_resolve())
        return hooks_real.calloc(n, size);
    if (__builtin_mul_overflow(n, size, &size)) {
        errno = ENOMEM;
        return NULL;
    }
    return arena_take(size); /* memory of the arena is never reused, so it is still zeroed */
}

static void *first_realloc(void *p, size_t size)
{
    return hooks_resolve() ? hooks_real.realloc(p, size) : realloc_but_arena(p, size);
}

static void first_free(void *p)
{
    if (hooks_resolve())
        HEAP_LOAD(hooks_real.free)(p);
    else
        free_but_arena(p);
}

struct hooks_real hooks_real = {
    .malloc = first_malloc,
    .calloc = first_calloc,
    .realloc = first_realloc,
    .free = first_free,
};

/* ---- look-up ---- */

bool hooks_is_allocator(const void *address)
{
    return (uintptr_t)address - allocator_start < allocator_end - allocator_start;
}

static void *find_next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

#define FIND(name) HOOKS_FUNCTION(__typeof__(hooks_real.name), find(#name))

static void find_others(hooks_find_fn *find)
{
    hooks_real.posix_memalign = FIND(posix_memalign);
    hooks_real.aligned_alloc = FIND(aligned_alloc);
    hooks_real.memalign = FIND(memalign);
    hooks_real.valloc = FIND(valloc);
    hooks_real.pvalloc = FIND(pvalloc);
    hooks_real.mmap = FIND(mmap);
    hooks_real.munmap = FIND(munmap);
    hooks_real.mremap = FIND(mremap);
    hooks_real.dlclose = FIND(dlclose);
    hooks_real.prctl = FIND(prctl);
    hooks_real.syscall = FIND(syscall);
}

/* Looks up all functions. malloc, calloc, realloc and free may be called during the look-up, so
 * they are set last. */
static void find_all(hooks_find_fn *find)
{
    find_others(find);
    void *(*next_malloc)(size_t) = FIND(malloc);
    void *(*next_calloc)(size_t, size_t) = FIND(calloc);
    next_realloc = FIND(realloc);
    next_free = HOOKS_FUNCTION(void (*)(void *), find("free"));
    if (!next_malloc || !next_calloc || !next_realloc || !next_free)
        __builtin_trap(); /* the process has no libc */
    modules_extent((uintptr_t)next_malloc, &allocator_start, &allocator_end);
    size_t (*usable)(void *) = FIND(malloc_usable_size);
    if (hooks_is_allocator((const void *)(uintptr_t)usable) && !life_is_given_up())
        hooks_real.malloc_usable_size = usable;
    hooks_real.malloc = next_malloc;
    hooks_real.calloc = next_calloc;
    void (*first)(void *) = first_free;
    bool had_arena = !atomic_compare_exchange_strong(&hooks_real.free, &first, next_free);
    hooks_real.realloc = had_arena ? realloc_but_arena : next_realloc;
    if (had_arena)
        /* The real malloc_usable_size must not be called with blocks of the arena. */
        hooks_real.malloc_usable_size = NULL;
}

bool hooks_resolve_by(hooks_find_fn *find)
{
    int state = HEAP_LOAD_ACQUIRE(resolve_state);
    if (state == RESOLVE_NOT_YET &&
        atomic_compare_exchange_strong(&resolve_state, &state, RESOLVE_NOW)) {
        int saved = errno;
        find_all(find);
        errno = saved;
        atomic_store(&resolve_state, RESOLVE_DONE);
        return true;
    }
    return state == RESOLVE_DONE;
}

bool hooks_resolve(void)
{
    return hooks_resolve_by(find_next);
}
