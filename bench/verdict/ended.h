/* Tests how many jobs that ended by themselves at a random time are called a leak. */
#pragma once

#include <stdint.h>

/* Truncates SEEDS runs of each family, from seed SEED0 on, at a random time, without marks or with
 * steps only. Prints how many were judged a leak before the end was known, and how many afterwards.
 * FAMILY may be NULL. */
void ended_bench(uint64_t seed0, unsigned seeds, const char *family);
