/* Draws a curve in a terminal, with two by four dots per character. */
#pragma once

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
