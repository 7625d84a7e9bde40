/* A fake libc10_cuda.so of PyTorch: reports every block under a lock, as the caching allocator
 * does. The addresses have no memory behind them. */
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

struct c10_device {
    int8_t type, index;
};

#ifdef C10_OTHER
#define REPORT_BLOCK "_ZN3c1027reportMemoryUsageToProfilerEPvl"
#define REPORT_FAILURE "_ZN3c1027reportOutOfMemoryToProfilerEl"
#else
#define REPORT_BLOCK "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define REPORT_FAILURE "_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE"
#endif
#define SEEN __attribute__((visibility("default")))
#define BASE UINT64_C(0x7f0000000000) /* in a range that host addresses may use as well */
#define STEP UINT64_C(512)

void report_block(void *p, int64_t size, size_t allocated, size_t reserved,
                  struct c10_device device) __asm__(REPORT_BLOCK);
void report_failure(int64_t size, size_t allocated, size_t reserved,
                    struct c10_device device) __asm__(REPORT_FAILURE);

/* The real library also calls other functions of libc10.so. With C10_BARE, this fake library calls
 * none of those functions, but still names libc10.so as a needed library. */
#ifndef C10_BARE
uint64_t c10_blocks(void);
SEEN uint64_t standin_blocks(void);
SEEN uint64_t standin_blocks(void)
{
    return c10_blocks();
}
#endif

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next_address = BASE;
static size_t totals[256], reserves[256];

/* Forwards its arguments unchecked, for tests of invalid reports. */
SEEN void standin_report(uint64_t p, int64_t size, uint64_t allocated, uint64_t reserved, int type,
                         int index);
SEEN void standin_report(uint64_t p, int64_t size, uint64_t allocated, uint64_t reserved, int type,
                         int index)
{
    report_block((void *)(uintptr_t)p, size, allocated, reserved,
                 (struct c10_device){(int8_t)type, (int8_t)index});
}

SEEN uint64_t standin_malloc(int64_t size, int index);
SEEN uint64_t standin_malloc(int64_t size, int index)
{
    pthread_mutex_lock(&lock);
    uint64_t p = next_address;
    next_address += ((uint64_t)size + STEP - 1) / STEP * STEP + STEP;
    size_t *total = &totals[(uint8_t)index], *reserved = &reserves[(uint8_t)index];
    *total += (size_t)size;
    if (*total > *reserved)
        *reserved = *total;
    standin_report(p, size, *total, *reserved, 1, index);
    pthread_mutex_unlock(&lock);
    return p;
}

SEEN void standin_free(uint64_t p, int64_t size, int index);
SEEN void standin_free(uint64_t p, int64_t size, int index)
{
    pthread_mutex_lock(&lock);
    totals[(uint8_t)index] -= (size_t)size;
    standin_report(p, -size, totals[(uint8_t)index], reserves[(uint8_t)index], 1, index);
    pthread_mutex_unlock(&lock);
}

SEEN void standin_fail(int64_t size, int index);
SEEN void standin_fail(int64_t size, int index)
{
    report_failure(size, totals[(uint8_t)index], reserves[(uint8_t)index],
                   (struct c10_device){1, (int8_t)index});
}

SEEN uint64_t standin_allocated(int index);
SEEN uint64_t standin_allocated(int index)
{
    return totals[(uint8_t)index];
}

SEEN void standin_reserve(uint64_t bytes, int index);
SEEN void standin_reserve(uint64_t bytes, int index)
{
    reserves[(uint8_t)index] = bytes;
}
