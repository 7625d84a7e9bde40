/* Hooks for malloc and related functions. */
#include "heap/hooks.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>

#include "heap/life.h"
#include "heap/live.h"
#include "heap/record.h"
#include "heap/sampler.h"

HOOKS_COLD void hooks_sample(void *p, size_t size, size_t total, enum heap_kind kind)
{
    struct heap_thread *t = &heap_thread;
    if (!p || size == 0 || size > INT64_MAX / 2)
        return;
    if (t->busy) { /* the countdown is paused while the library itself allocates */
        heap_drop(HEAP_DROP_NESTED);
        return;
    }
    if (!life_start())
        return;
    if (!life_enter(t)) {
        life_rest(t);
        return;
    }
    uint64_t interval;
    t->countdown -= (int64_t)size;
    if (sampler_hit(t, size, &interval))
        record_allocation(p, total, interval, kind);
    life_leave(t);
}

static HOOKS_COLD void *malloc_slowly(size_t size)
{
    void *p = hooks_real.malloc(size);
    hooks_sample(p, size, size, HEAP_KIND_MALLOC);
    return p;
}

HOOK void *malloc(size_t size)
{
    if (HEAP_LIKELY(hooks_count(size)))
        return hooks_real.malloc(size);
    return malloc_slowly(size);
}

static HOOKS_COLD void free_slowly(void *p)
{
    record_end(p);
    HEAP_LOAD(hooks_real.free)(p);
}

/* The hooks call each other through these functions. A call by exported name would reach the first
 * definition in the process, which belongs to another library if this library was loaded late. */
static inline void free_any(void *ptr)
{
    if (HEAP_LIKELY(!live_maybe(ptr)))
        HEAP_LOAD(hooks_real.free)(ptr);
    else
        free_slowly(ptr);
}

HOOK void free(void *ptr)
{
    free_any(ptr);
}

/* cfree was removed from the headers of glibc 2.26, but old programs still call it. */
HOOK void cfree(void *p);
HOOK void cfree(void *p)
{
    free_any(p);
}

static HOOKS_COLD void *calloc_slowly(size_t n, size_t size)
{
    void *p = hooks_real.calloc(n, size);
    hooks_sample(p, n * size, n * size, HEAP_KIND_MALLOC);
    return p;
}

HOOK void *calloc(size_t nmemb, size_t size)
{
    size_t total;
    if (HEAP_UNLIKELY(__builtin_mul_overflow(nmemb, size, &total)) ||
        HEAP_LIKELY(hooks_count(total)))
        return hooks_real.calloc(nmemb, size);
    return calloc_slowly(nmemb, size);
}

/* ---- realloc ----
 *
 * A block is sampled if the Poisson process hits one of its bytes: P(sampled) = 1 −
 * exp(−size/interval), regardless of the number of reallocs through which it reached its size.
 * Therefore a sampled block that grows stays sampled. A sampled block that shrinks stays sampled
 * with the probability that the hit byte is in the remaining part. For an unsampled block only the
 * growth is subtracted from the countdown; subtracting the whole new size would sample a buffer
 * that grows in small steps too often. */

static HOOKS_COLD void *realloc_sample(void *p, size_t size, const struct live_sample *sample)
{
    void *moved = hooks_real.realloc(p, size);
    bool has_failed = !moved && size != 0;
    record_again(has_failed ? p : moved, has_failed ? sample->size : size, sample);
    return moved;
}

/* Reallocates a block that is not sampled. Subtracts the growth of its usable size from the
 * countdown, so that the growth over several reallocs adds up. If usable sizes are unknown,
 * subtracts the whole new size. */
static void *realloc_other(void *p, size_t size)
{
    size_t (*usable)(void *) = hooks_real.malloc_usable_size;
    size_t before = p && usable ? usable(p) : 0;
    void *moved = hooks_real.realloc(p, size);
    if (!moved)
        return NULL;
    size_t after = p && usable ? usable(moved) : size;
    if (after > before && HEAP_UNLIKELY(!hooks_count(after - before)))
        hooks_sample(moved, after - before, size, HEAP_KIND_MALLOC);
    return moved;
}

static void *realloc_any(void *ptr, size_t size)
{
    struct live_sample sample;
    if (HEAP_UNLIKELY(live_maybe(ptr)) && record_take(ptr, &sample))
        return realloc_sample(ptr, size, &sample);
    return realloc_other(ptr, size);
}

HOOK void *realloc(void *ptr, size_t size)
{
    return realloc_any(ptr, size);
}

HOOK void *reallocarray(void *ptr, size_t nmemb, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(nmemb, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc_any(ptr, total);
}

/* ---- aligned allocation ---- */

#define IS_AVAILABLE(name) (HEAP_LIKELY(hooks_real.name) || (hooks_resolve() && hooks_real.name))

static void *count_aligned(void *p, size_t size)
{
    if (p && HEAP_UNLIKELY(!hooks_count(size)))
        hooks_sample(p, size, size, HEAP_KIND_MALLOC);
    return p;
}

static void *fail_enomem(void)
{
    errno = ENOMEM;
    return NULL;
}

HOOK int posix_memalign(void **memptr, size_t alignment, size_t size)
{
    int error =
        IS_AVAILABLE(posix_memalign) ? hooks_real.posix_memalign(memptr, alignment, size) : ENOMEM;
    if (error == 0)
        count_aligned(*memptr, size);
    return error;
}

HOOK void *aligned_alloc(size_t alignment, size_t size)
{
    return IS_AVAILABLE(aligned_alloc)
               ? count_aligned(hooks_real.aligned_alloc(alignment, size), size)
               : fail_enomem();
}

HOOK void *memalign(size_t alignment, size_t size)
{
    return IS_AVAILABLE(memalign) ? count_aligned(hooks_real.memalign(alignment, size), size)
                                  : fail_enomem();
}

HOOK void *valloc(size_t size)
{
    return IS_AVAILABLE(valloc) ? count_aligned(hooks_real.valloc(size), size) : fail_enomem();
}

HOOK void *pvalloc(size_t size)
{
    return IS_AVAILABLE(pvalloc) ? count_aligned(hooks_real.pvalloc(size), size) : fail_enomem();
}
