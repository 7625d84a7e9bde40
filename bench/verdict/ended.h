/* Lets jobs end by themselves at a random time, and counts how many of them are judged a leak. */
#pragma once

#include <stdint.h>

/* Truncates SEEDS runs of each family at a random time, from seed SEED0 on, without marks or with
 * step marks only. Prints how many were judged a leak before the end was known, and how many
 * afterwards. FAMILY selects one family (NULL: all). */
void ended_bench(uint64_t seed0, unsigned seeds, const char *family);
