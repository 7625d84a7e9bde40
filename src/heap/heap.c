/* The globals of the preloaded library, its clock, and the text section of the table. */
#include "heap/heap.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

__thread struct heap_thread heap_thread __attribute__((tls_model("initial-exec")));
struct heap_process heap_process;

uint64_t heap_clock_ns(void)
{
    struct timespec t;
    if (clock_gettime(CLOCK_MONOTONIC, &t) != 0)
        return 0;
    return (uint64_t)t.tv_sec * UINT64_C(1000000000) + (uint64_t)t.tv_nsec;
}

bool heap_take(_Atomic(uint32_t) *used, uint32_t n, uint32_t end, uint32_t *ret)
{
    uint32_t at = atomic_load_explicit(used, memory_order_relaxed);
    do {
        if (at > end || n > end - at)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(used, &at, at + n, memory_order_relaxed,
                                                    memory_order_relaxed));
    *ret = at;
    return true;
}

void heap_zero(void *pages, size_t len)
{
    int saved = errno;
    bool may_call = HEAP_LOAD(heap_process.is_confined) == 0;
    if (!may_call || madvise(pages, len, MADV_DONTNEED) != 0)
        memset(pages, 0, len);
    errno = saved;
}

struct heap_text heap_text_add(struct heap_table *t, const void *bytes, size_t len)
{
    uint32_t at;
    if (len == 0)
        return (struct heap_text){0, 0};
    if (len > HEAP_TEXT_BYTES ||
        !heap_take(&t->header.text_bytes, (uint32_t)len, HEAP_TEXT_BYTES, &at)) {
        heap_drop(HEAP_DROP_TEXT);
        return (struct heap_text){0, 0};
    }
    memcpy(t->text + at, bytes, len);
    return (struct heap_text){at, (uint32_t)len};
}
