/* Renders a series as a row of small bars. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPARK_LEVELS = 8 };

/* Computes the levels, 0 to 7, of the newest WIDTH of COUNT values. RET must have room for WIDTH
 * levels. The range from minimum to maximum is stretched to all levels. A change below a fiftieth
 * of the maximum remains small, so that noise does not look like growth. Returns the number of
 * levels. */
size_t spark_levels(const uint64_t *values, size_t count, size_t width, uint8_t *ret);

enum { SPARK_TEXT_MAX = 3 * 64 + 1 };
/* Writes exactly WIDTH (at most 64) columns, the newest at the right, such as "    ▁▁▂▃▅█" or "
 * __.-=#". */
char *spark_text(char out[SPARK_TEXT_MAX], const uint64_t *values, size_t count, size_t width,
                 bool is_ascii);
