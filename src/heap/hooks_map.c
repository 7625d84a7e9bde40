/* Hooks for mmap, munmap and mremap. They count the mappings that the job makes itself. They do not
 * count mappings made by the process's allocator, because the blocks in these mappings are already
 * counted one by one. */
#include "heap/hooks.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "heap/life.h"
#include "heap/live.h"
#include "heap/python.h"
#include "heap/record.h"

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

/* An anonymous mapping of at least this size is usually address space that an allocator reserves,
 * not a buffer. */
#define POOL_BYTES ((size_t)64 << 20)

/* Rounds LEN up to whole pages. Returns 0 on overflow, since such a mapping cannot exist. */
static size_t whole_pages(size_t len)
{
    size_t page = (size_t)getauxval(AT_PAGESZ);
    return (len + page - 1) & ~(page - 1);
}

/* Returns true if CALLER is code of an allocator whose mappings must not be counted. */
static bool is_arena(const void *caller)
{
    return heap_thread.no_maps || hooks_is_allocator(caller) || python_owns_map((uintptr_t)caller);
}

static void end_samples(const void *start, size_t len)
{
    struct heap_thread *t = &heap_thread;
    if (!life_enter(t))
        return;
    if (life_is_on())
        live_cut((uintptr_t)start, whole_pages(len));
    life_leave(t);
}

/* Returns true if FD is a memfd or a file in /dev/shm. */
static bool is_shared_memory(int fd)
{
    struct statfs fs;
    int saved = errno;
    bool is_shared = fd >= 0 && !HEAP_LOAD(heap_process.is_confined) &&
                     syscall(SYS_fstatfs, fd, &fs) == 0 &&
                     (fs.f_type == TMPFS_MAGIC || fs.f_type == HUGETLBFS_MAGIC);
    errno = saved;
    return is_shared;
}

/* Determines the kind of a mapping. Returns false for mappings that are not counted: those without
 * write permission, private mappings of files, and shared mappings of files outside /dev/shm. */
static bool map_kind(size_t len, int prot, int flags, int fd, enum heap_kind *ret)
{
    bool is_anonymous = flags & MAP_ANONYMOUS, is_shared = flags & MAP_SHARED;
    if (!(prot & PROT_WRITE) || (!is_anonymous && !(is_shared && is_shared_memory(fd))))
        return false;
    *ret = is_shared                                      ? HEAP_KIND_SHARED
           : len >= POOL_BYTES || (flags & MAP_NORESERVE) ? HEAP_KIND_POOL
                                                          : HEAP_KIND_MAP;
    return true;
}

static void count_map(void *p, size_t len, enum heap_kind kind)
{
    size_t size = whole_pages(len);
    if (HEAP_UNLIKELY(!hooks_count(size)))
        hooks_sample(p, size, size, kind);
}

static void *real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
    if (HEAP_UNLIKELY(!hooks_real.mmap) && (!hooks_resolve() || !hooks_real.mmap))
        return (void *)syscall(SYS_mmap, at, len, prot, flags, fd, offset);
    return hooks_real.mmap(at, len, prot, flags, fd, offset);
}

static void *map_real(void *at, size_t len, int prot, int flags, int fd, off_t offset,
                      const void *caller)
{
    void *p = real_mmap(at, len, prot, flags, fd, offset);
    enum heap_kind kind;
    if (p == MAP_FAILED || is_arena(caller))
        return p;
    if (flags & MAP_FIXED)
        end_samples(p, len);
    if (map_kind(len, prot, flags, fd, &kind))
        count_map(p, len, kind);
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

/* Removes the samples before the real call, because right after that call another thread may map
 * the same addresses. */
HOOK int munmap(void *addr, size_t len)
{
    if (!is_arena(__builtin_return_address(0)))
        end_samples(addr, len);
    if (HEAP_UNLIKELY(!hooks_real.munmap) && (!hooks_resolve() || !hooks_real.munmap))
        return (int)syscall(SYS_munmap, addr, len);
    return hooks_real.munmap(addr, len);
}

/* ---- mremap ---- */

static void *real_mremap(void *start, size_t old, size_t len, int flags, void *at)
{
    if (HEAP_UNLIKELY(!hooks_real.mremap) && (!hooks_resolve() || !hooks_real.mremap))
        return (void *)syscall(SYS_mremap, start, old, len, flags, at);
    return hooks_real.mremap(start, old, len, flags, at);
}

/* Remaps a sampled mapping. A mapping that is remapped as a whole keeps its sample, as a block does
 * in realloc. */
static void *remap_sample(void *start, size_t old, size_t len, int flags, void *at,
                          const struct live_sample *sample)
{
    void *p = real_mremap(start, old, len, flags, at);
    if (p == MAP_FAILED) {
        record_again(start, sample->size, sample);
        return p;
    }
    if (flags & MREMAP_FIXED)
        end_samples(p, len);
    record_again(p, whole_pages(len), sample);
    return p;
}

/* Remaps a mapping that is not sampled as a whole. Only growth is counted. A part that moves away
 * from a sampled mapping is no longer counted. */
static void *remap_other(void *start, size_t old, size_t len, int flags, void *at)
{
    void *p = real_mremap(start, old, len, flags, at);
    if (p == MAP_FAILED)
        return p;
    if (p != start || len < old)
        end_samples(p == start ? (char *)start + len : (char *)start, p == start ? old - len : old);
    if (flags & MREMAP_FIXED)
        end_samples(p, len);
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
