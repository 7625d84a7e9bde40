/* An allocator with its own operator new, preloaded after the hooks. It never reuses blocks,
 * because the tests only check that ebb recognises it as an allocator. */
#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#define EXPORT __attribute__((visibility("default")))
enum { CHUNK = 256 << 20, HEAD = 16 };

static _Atomic(uintptr_t) at;
static uintptr_t end;

static void *take(size_t size, size_t alignment)
{
    if (size > CHUNK / 4) {
        errno = ENOMEM;
        return NULL;
    }
    if (!atomic_load(&at)) {
        uintptr_t p = (uintptr_t)mmap(NULL, CHUNK, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        uintptr_t none = 0;
        end = p + CHUNK;
        atomic_compare_exchange_strong(&at, &none, p);
    }
    uintptr_t start = atomic_fetch_add(&at, (size + alignment + HEAD + 15) & ~(size_t)15);
    if (start + size + alignment + HEAD > end) {
        errno = ENOMEM;
        return NULL;
    }
    uintptr_t p = (start + HEAD + alignment - 1) & ~(alignment - 1);
    memcpy((void *)(p - HEAD), &size, sizeof(size));
    return (void *)p;
}

EXPORT size_t malloc_usable_size(void *p);
size_t malloc_usable_size(void *p)
{
    size_t size = 0;
    if (p)
        memcpy(&size, (char *)p - HEAD, sizeof(size));
    return size;
}

EXPORT void *malloc(size_t size);
void *malloc(size_t size)
{
    return take(size, 16);
}

EXPORT void free(void *p);
void free(void *p)
{
    (void)p;
}

EXPORT void *calloc(size_t n, size_t size);
void *calloc(size_t n, size_t size)
{
    if (__builtin_mul_overflow(n, size, &size)) {
        errno = ENOMEM;
        return NULL;
    }
    return take(size, 16);
}

EXPORT void *realloc(void *p, size_t size);
void *realloc(void *p, size_t size)
{
    size_t old = malloc_usable_size(p);
    void *moved = take(size, 16);
    if (moved && p)
        memcpy(moved, p, old < size ? old : size);
    return moved;
}

EXPORT int posix_memalign(void **ret, size_t alignment, size_t size);
int posix_memalign(void **ret, size_t alignment, size_t size)
{
    void *p = take(size, alignment);
    if (p)
        *ret = p;
    return p ? 0 : ENOMEM;
}

EXPORT void *aligned_alloc(size_t alignment, size_t size);
void *aligned_alloc(size_t alignment, size_t size)
{
    return take(size, alignment);
}

EXPORT void *_Znwm(size_t size);
void *_Znwm(size_t size)
{
    return take(size, 16);
}

/* operator new[] calls malloc through the dynamic linker, so it calls the hook. */
EXPORT void *_Znam(size_t size);
void *_Znam(size_t size)
{
    return malloc(size);
}

EXPORT void _ZdlPv(void *p);
void _ZdlPv(void *p)
{
    (void)p;
}
