/* The system clocks. */
#pragma once

#include <stdint.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)

uint64_t clock_mono_ns(void); /* CLOCK_MONOTONIC, used for every t_ns in this program */
uint64_t clock_wall_ns(void); /* nanoseconds since 1970 */
/* Like clock_mono_ns, but also advances while the machine is suspended. */
uint64_t clock_boot_ns(void);
uint64_t clock_thread_cpu_ns(void);
