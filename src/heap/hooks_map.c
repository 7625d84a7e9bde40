/* Anonymous mappings that the job makes itself: mmap, munmap, mremap. Those that an allocator makes
 * hold blocks that are counted one by one, and are not counted again. */
#include "heap/hooks.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "heap/life.h"
#include "heap/live.h"
#include "heap/python.h"
#include "heap/record.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* 0 where rounding up goes over the top: no such mapping is ever made. */
static size_t whole_pages(size_t len)
{
    size_t page = (size_t)getauxval(AT_PAGESZ);
    return (len + page - 1) & ~(page - 1);
}

/* Is what CALLER maps or unmaps none of our business? */
static bool is_arena(const void *caller)
{
    return heap_thread.no_maps || hooks_is_allocator(caller) || python_owns_map((uintptr_t)caller);
}

static void cut(const void *start, size_t len)
{
    if (life_is_on())
        live_cut((uintptr_t)start, whole_pages(len));
}

static void count_map(void *p, size_t len)
{
    size_t size = whole_pages(len);
    if (HEAP_UNLIKELY(!hooks_count(size)))
        hooks_sample(p, size, size, HEAP_KIND_MAP);
}

static void *real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    if (HEAP_UNLIKELY(!hooks_real.mmap) && (!hooks_look() || !hooks_real.mmap))
        return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
    return hooks_real.mmap(at, len, prot, flags, fd, offset);
}

static void *map_real(void *at, size_t len, int prot, int flags, int fd, off_t offset,
                      const void *caller)
{
    void *p = real_mmap(at, len, prot, flags, fd, offset);
    if (p == MAP_FAILED || is_arena(caller))
        return p;
    if (flags & MAP_FIXED)
        cut(p, len);
    if ((flags & MAP_ANONYMOUS) && (prot & PROT_WRITE))
        count_map(p, len);
    return p;
}

HOOK void *mmap(void *addr, size_t len, int prot, int flags, int fd, off_t offset)
{
    return map_real(addr, len, prot, flags, fd, offset, __builtin_return_address(0));
}

HOOK void *mmap64(void *addr, size_t len, int prot, int flags, int fd, off64_t offset)
{
    return map_real(addr, len, prot, flags, fd, offset, __builtin_return_address(0));
}

/* Ended before the real call: another thread may be given the same addresses right after it. */
HOOK int munmap(void *addr, size_t len)
{
    if (!is_arena(__builtin_return_address(0)))
        cut(addr, len);
    if (HEAP_UNLIKELY(!hooks_real.munmap) && (!hooks_look() || !hooks_real.munmap))
        return (int)syscall(SYS_munmap, addr, len);
    return hooks_real.munmap(addr, len);
}

/* ---- mremap ---- */

static void *real_mremap(void *start, size_t old, size_t len, int flags, void *at)
{
    if (HEAP_UNLIKELY(!hooks_real.mremap) && (!hooks_look() || !hooks_real.mremap))
        return (void *)syscall(SYS_mremap, start, old, len, flags, at);
    return hooks_real.mremap(start, old, len, flags, at);
}

/* A sample that is remapped as a whole is carried on, as by realloc. */
static void *remap_sample(void *start, size_t old, size_t len, int flags, void *at,
                          const struct live_sample *sample)
{
    void *p = real_mremap(start, old, len, flags, at);
    if (p == MAP_FAILED) {
        record_again(start, sample->size, sample);
        return p;
    }
    if (flags & MREMAP_FIXED)
        cut(p, len);
    record_again(p, whole_pages(len), sample);
    return p;
}

/* Of a mapping that is none, what it grows by counts; what is cut out of a larger one goes on
 * uncounted. */
static void *remap_other(void *start, size_t old, size_t len, int flags, void *at)
{
    void *p = real_mremap(start, old, len, flags, at);
    if (p == MAP_FAILED)
        return p;
    if (p != start || len < old)
        cut(p == start ? (char *)start + len : (char *)start, p == start ? old - len : old);
    if (flags & MREMAP_FIXED)
        cut(p, len);
    size_t before = whole_pages(old), after = whole_pages(len);
    if (after > before && HEAP_UNLIKELY(!hooks_count(after - before)))
        hooks_sample(p, after - before, after, HEAP_KIND_MAP);
    return p;
}

HOOK void *mremap(void *addr, size_t old_len, size_t new_len, int flags, ...)
{
    va_list rest;
    va_start(rest, flags);
    void *at = flags & (MREMAP_FIXED | MREMAP_DONTUNMAP) ? va_arg(rest, void *) : NULL;
    va_end(rest);
    if (is_arena(__builtin_return_address(0)))
        return real_mremap(addr, old_len, new_len, flags, at);
    struct live_sample sample;
    if (live_maybe(addr) && life_is_on() && live_find(addr, &sample) &&
        sample.size == whole_pages(old_len) && record_take(addr, &sample))
        return remap_sample(addr, old_len, new_len, flags, at, &sample);
    return remap_other(addr, old_len, new_len, flags, at);
}
