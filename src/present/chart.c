/* Draws series in a terminal, as curves of braille characters and as rows of small bars. */
#include "present/chart.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a curve ---- */

void braille_init(struct braille *b, size_t columns, size_t rows)
{
    assert(columns && columns <= BRAILLE_WIDTH && rows && rows <= BRAILLE_HEIGHT);
    memset(b, 0, sizeof *b);
    b->columns = columns;
    b->rows = rows;
}

/* Sets the dot at X, Y, counted from the upper left corner. */
static void set(struct braille *b, long x, long y)
{
    static const uint8_t bits[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || y < 0 || x >= (long)b->columns * 2 || y >= (long)b->rows * 4)
        return;
    b->dots[y / 4][x / 2] |= bits[y % 4][x % 2];
}

static double part(double v, double from, double until)
{
    return until > from ? (v - from) / (until - from) : 0.5;
}

static long dot(double share, size_t dots)
{
    double at = share * (double)(dots - 1);
    return at > -1 && at < (double)dots ? lround(at) : -1;
}

/* Draws a line between two dots, with one dot for each position on the longer axis. */
static void line(struct braille *b, long x0, long y0, long x1, long y1)
{
    long dx = labs(x1 - x0), dy = labs(y1 - y0), n = dx > dy ? dx : dy;
    for (long i = 0; i <= n; i++)
        set(b, x0 + (n ? (x1 - x0) * i / n : 0), y0 + (n ? (y1 - y0) * i / n : 0));
}

void braille_draw(struct braille *b, const struct braille_range *range,
                  const struct series_point *points, size_t count)
{
    long last_x = -1, last_y = -1;
    for (size_t i = 0; i < count; i++) {
        long x = dot(part((double)points[i].t_ns, range->t_from, range->t_until), b->columns * 2);
        long y = dot(1 - part((double)points[i].v, range->v_from, range->v_until), b->rows * 4);
        if (x < 0 || y < 0) {
            last_x = -1;
            continue;
        }
        if (last_x < 0)
            set(b, x, y);
        else
            line(b, last_x, last_y, x, y);
        last_x = x;
        last_y = y;
    }
}

char *braille_row(const struct braille *b, size_t row, char out[BRAILLE_WIDTH * 3 + 1])
{
    char *at = out;
    for (size_t i = 0; i < b->columns; i++) {
        unsigned c = 0x2800u + b->dots[row][i];
        *at++ = (char)(0xE0 | (c >> 12));
        *at++ = (char)(0x80 | ((c >> 6) & 0x3F));
        *at++ = (char)(0x80 | (c & 0x3F));
    }
    *at = '\0';
    return out;
}

/* ---- a row of bars ---- */

char *spark_text(char out[SPARK_TEXT_MAX], const uint64_t *values, size_t count, size_t width,
                 bool is_ascii)
{
    static const char *const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char ascii[] = "_.-:=+*#";
    enum { LEVELS = sizeof bars / sizeof *bars };
    size_t shown = count < width ? count : width;
    const uint64_t *v = values + (count - shown);
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < shown; i++) {
        least = v[i] < least ? v[i] : least;
        most = v[i] > most ? v[i] : most;
    }
    uint64_t range = most - least > most / 50 ? most - least : most / 50;
    char *at = out + snprintf(out, SPARK_TEXT_MAX, "%*s", (int)(width - shown), "");
    for (size_t i = 0; i < shown; i++) {
        double share = range ? (double)(v[i] - least) / (double)range : 0;
        size_t level = (size_t)(share * (LEVELS - 1) + 0.5);
        if (is_ascii)
            *at++ = ascii[level];
        else
            at = stpcpy(at, bars[level]);
    }
    *at = '\0';
    return out;
}
