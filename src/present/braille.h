/* A curve in a terminal: two by four dots a character. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "run/series.h"

enum { BRAILLE_WIDTH = 120, BRAILLE_HEIGHT = 24 };

/* COLUMNS by ROWS characters, each the bits of its eight dots; at most the sizes above. */
struct braille {
    size_t columns, rows;
    uint8_t dots[BRAILLE_HEIGHT][BRAILLE_WIDTH];
};

struct braille_range {
    double t_from, t_until, v_from, v_until; /* times in ns */
};

void braille_init(struct braille *b, size_t columns, size_t rows);
/* The line through POINTS, which are in the order of time; what is outside of RANGE is cut off. */
void braille_draw(struct braille *b, const struct braille_range *range,
                  const struct series_point *points, size_t count);
/* One row as UTF-8: "⠀⢀⠤⠊"; returns OUT, NUL-ended. */
char *braille_row(const struct braille *b, size_t row, char out[BRAILLE_WIDTH * 3 + 1]);
