/* A fake libc10.so of PyTorch. It has the two functions to which PyTorch's allocators report, and
 * they count the reports. With C10_OTHER the functions have names that ebb does not know. */
#include <stdatomic.h>
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

static _Atomic(uint64_t) blocks, failures;

SEEN void report_block(void *p, int64_t size, size_t allocated, size_t reserved,
                       struct c10_device device) __asm__(REPORT_BLOCK);
SEEN void report_block(void *p, int64_t size, size_t allocated, size_t reserved,
                       struct c10_device device)
{
    (void)p, (void)size, (void)allocated, (void)reserved, (void)device;
    blocks++;
}

SEEN void report_failure(int64_t size, size_t allocated, size_t reserved,
                         struct c10_device device) __asm__(REPORT_FAILURE);
SEEN void report_failure(int64_t size, size_t allocated, size_t reserved, struct c10_device device)
{
    (void)size, (void)allocated, (void)reserved, (void)device;
    failures++;
}

SEEN uint64_t c10_blocks(void);
SEEN uint64_t c10_blocks(void)
{
    return blocks;
}

SEEN uint64_t c10_failures(void);
SEEN uint64_t c10_failures(void)
{
    return failures;
}
