/* malloc and its family: what every allocation of the job goes through. */
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
    if (t->busy) { /* the countdown stands still meanwhile */
        heap_drop(HEAP_DROP_NESTED);
        return;
    }
    if (!life_start())
        return;
    if (atomic_load_explicit(&heap_process.state, memory_order_acquire) == HEAP_OFF) {
        t->countdown = INT64_MAX;
        return;
    }
    uint64_t interval;
    t->countdown -= (int64_t)size;
    if (sampler_hit(t, size, &interval))
        record_allocation(p, total, interval, kind);
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
    atomic_load_explicit(&hooks_real.free, memory_order_relaxed)(p);
}

HOOK void free(void *ptr)
{
    if (HEAP_LIKELY(!live_maybe(ptr)))
        atomic_load_explicit(&hooks_real.free, memory_order_relaxed)(ptr);
    else
        free_slowly(ptr);
}

/* Left over from before glibc 2.26: old programs still call it. */
HOOK void cfree(void *p);
HOOK void cfree(void *p)
{
    free(p);
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
 * A block is a stretch of bytes, and a sample if the process hit one of them. One that grows is hit
 * in what is new of it, or was before: P(sampled) stays 1 − exp(−size/interval) however it came to
 * its size. So a sample that grows stays one; one that shrinks stays with the probability that the
 * hit was in what is left; and of a block that is none, what it grew by is taken from the
 * countdown. To count all of the new size instead would find a buffer that grows in small steps a
 * sample at each of them. */

static HOOKS_COLD void *realloc_sample(void *p, size_t size, const struct live_sample *sample)
{
    void *moved = hooks_real.realloc(p, size);
    bool is_kept = !moved && size != 0; /* it failed */
    record_again(is_kept ? p : moved, is_kept ? sample->size : size, sample);
    return moved;
}

/* Sizes as the allocator rounds them, before and after: so the steps of one block add up. Where it
 * does not tell them, all of the new size counts. */
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

HOOK void *realloc(void *ptr, size_t size)
{
    struct live_sample sample;
    if (HEAP_UNLIKELY(live_maybe(ptr)) && record_take(ptr, &sample))
        return realloc_sample(ptr, size, &sample);
    return realloc_other(ptr, size);
}

HOOK void *reallocarray(void *ptr, size_t nmemb, size_t size)
{
    size_t total;
    if (__builtin_mul_overflow(nmemb, size, &total)) {
        errno = ENOMEM;
        return NULL;
    }
    return realloc(ptr, total);
}

/* ---- aligned ---- */

#define IS_THERE(name) (HEAP_LIKELY(hooks_real.name) || (hooks_look() && hooks_real.name))

static void *counted(void *p, size_t size)
{
    if (p && HEAP_UNLIKELY(!hooks_count(size)))
        hooks_sample(p, size, size, HEAP_KIND_MALLOC);
    return p;
}

static void *not_there(void)
{
    errno = ENOMEM;
    return NULL;
}

HOOK int posix_memalign(void **memptr, size_t alignment, size_t size)
{
    int error =
        IS_THERE(posix_memalign) ? hooks_real.posix_memalign(memptr, alignment, size) : ENOMEM;
    if (error == 0)
        counted(*memptr, size);
    return error;
}

HOOK void *aligned_alloc(size_t alignment, size_t size)
{
    return IS_THERE(aligned_alloc) ? counted(hooks_real.aligned_alloc(alignment, size), size)
                                   : not_there();
}

HOOK void *memalign(size_t alignment, size_t size)
{
    return IS_THERE(memalign) ? counted(hooks_real.memalign(alignment, size), size) : not_there();
}

HOOK void *valloc(size_t size)
{
    return IS_THERE(valloc) ? counted(hooks_real.valloc(size), size) : not_there();
}

HOOK void *pvalloc(size_t size)
{
    return IS_THERE(pvalloc) ? counted(hooks_real.pvalloc(size), size) : not_there();
}
