/* The clocks, read in one place so that everything else can take time as an argument. */
#pragma once

#include <stdint.h>

#define NS_PER_S UINT64_C(1000000000)
#define NS_PER_MS UINT64_C(1000000)
#define NS_PER_US UINT64_C(1000)

uint64_t clock_mono_ns(void); /* CLOCK_MONOTONIC: what every t_ns in this program is */
uint64_t clock_wall_ns(void); /* since 1970 */
uint64_t clock_boot_ns(void); /* as the first, and on while the machine sleeps */
uint64_t clock_thread_cpu_ns(void);
