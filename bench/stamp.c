/* Prints CLOCK_MONOTONIC in nanoseconds at the beginning of main. The difference to the time
 * before the start is the cost of starting a program. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"

int main(void)
{
    printf("%" PRIu64 "\n", clock_mono_ns());
    return 0;
}
