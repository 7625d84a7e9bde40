/* Says when it was reached: CLOCK_MONOTONIC in nanoseconds at the beginning of main. What lies
 * between that and the moment before it was started is what starting it costs. */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"

int main(void)
{
    printf("%" PRIu64 "\n", clock_mono_ns());
    return 0;
}
