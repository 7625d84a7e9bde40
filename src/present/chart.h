/* Draws series in a terminal: curves with two by four dots per character, and rows of small bars.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/series.h"

enum { BRAILLE_WIDTH = 120, BRAILLE_HEIGHT = 24 };

/* A picture of COLUMNS by ROWS characters, at most the sizes above. Each byte holds the bits of
 * eight dots. */
struct braille {
    size_t columns, rows;
    uint8_t dots[BRAILLE_HEIGHT][BRAILLE_WIDTH];
};

struct braille_range {
    /* Range of the axes: times in nanoseconds, and values. */
    double t_from, t_until, v_from, v_until;
};

void braille_init(struct braille *b, size_t columns, size_t rows);
/* Draws the line through POINTS, which are in order of time. Parts outside RANGE are clipped. */
void braille_draw(struct braille *b, const struct braille_range *range,
                  const struct series_point *points, size_t count);
/* Writes one row as UTF-8, such as "⠀⢀⠤⠊". Returns OUT, which ends in NUL. */
char *braille_row(const struct braille *b, size_t row, char out[BRAILLE_WIDTH * 3 + 1]);

enum { SPARK_TEXT_MAX = 3 * 64 + 1 };
/* Writes exactly WIDTH (at most 64) columns for the newest of COUNT values, the newest at the
 * right, such as " ▁▁▂▃▅█" or " __.-=#". The heights span the range from minimum to maximum, but at
 * least a fiftieth of the maximum, so that noise does not look like growth. */
char *spark_text(char out[SPARK_TEXT_MAX], const uint64_t *values, size_t count, size_t width,
                 bool is_ascii);
