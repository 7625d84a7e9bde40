/* Prints CLOCK_MONOTONIC in nanoseconds at the beginning of main. The caller subtracts the time
 * before the start to get the cost of starting a program. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"

int main(void)
{
    printf("%" PRIu64 "\n", clock_mono_ns());
    return 0;
}
