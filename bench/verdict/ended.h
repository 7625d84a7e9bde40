/* Jobs that ended by themselves at any time: what is called then that would have been waited for.
 */
#pragma once

#include <stdint.h>

/* Ends SEEDS runs of each family from SEED0 on, at a random time and without marks, or with steps
 * alone, and prints what was called a leak, before and with the end known. FAMILY may be NULL. */
void ended_bench(uint64_t seed0, unsigned seeds, const char *family);
