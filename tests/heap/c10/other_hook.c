/* Another preloaded library that defines torch's report function. It counts the calls, forwards
 * them to the next definition, and prints the count at exit. */
#include <dlfcn.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define REPORT_BLOCK "_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE"
#define SEEN __attribute__((visibility("default")))

struct c10_device {
    int8_t type, index;
};
typedef void report_fn(void *p, int64_t size, size_t allocated, size_t reserved,
                       struct c10_device device);

static _Atomic(uint64_t) calls;

SEEN void report_block(void *p, int64_t size, size_t allocated, size_t reserved,
                       struct c10_device device) __asm__(REPORT_BLOCK);
SEEN void report_block(void *p, int64_t size, size_t allocated, size_t reserved,
                       struct c10_device device)
{
    report_fn *next = (report_fn *)(uintptr_t)dlsym(RTLD_NEXT, REPORT_BLOCK);
    calls++;
    if (next)
        next(p, size, allocated, reserved, device);
}

static __attribute__((destructor)) void print_calls(void)
{
    printf("other %llu\n", (unsigned long long)calls);
}
