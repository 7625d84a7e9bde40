/* A series as a row of small bars. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPARK_LEVELS = 8 };

/* Levels 0 to 7 of the newest WIDTH of COUNT values, which must hold that many. Stretched from the
 * least to the greatest, but a change under a fiftieth of the greatest stays small: noise must not
 * look like a mountain. Returns how many. */
size_t spark_levels(const uint64_t *values, size_t count, size_t width, uint8_t *ret);

enum { SPARK_TEXT_MAX = 3 * 64 + 1 };
/* Exactly WIDTH (at most 64) columns, the newest at the right: "    ▁▁▂▃▅█", or "    __.-=#". */
char *spark_text(char out[SPARK_TEXT_MAX], const uint64_t *values, size_t count, size_t width,
                 bool is_ascii);
