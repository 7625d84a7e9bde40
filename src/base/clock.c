/* Reads the system clocks, in nanoseconds. */
#include "base/clock.h"

#include <time.h>

/* The clocks used here exist on all supported kernels, so clock_gettime cannot fail. */
static uint64_t read_ns(clockid_t id)
{
    struct timespec ts = {0};
    clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t clock_mono_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t clock_wall_ns(void)
{
    return read_ns(CLOCK_REALTIME);
}

uint64_t clock_boot_ns(void)
{
    return read_ns(CLOCK_BOOTTIME);
}

uint64_t clock_thread_cpu_ns(void)
{
    return read_ns(CLOCK_THREAD_CPUTIME_ID);
}
