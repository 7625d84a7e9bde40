/* Renders a series as a row of small bars. */
#include "present/spark.h"

#include <assert.h>
#include <string.h>

size_t spark_levels(const uint64_t *values, size_t count, size_t width, uint8_t *ret)
{
    size_t shown = count < width ? count : width;
    const uint64_t *v = values + (count - shown);
    uint64_t least = UINT64_MAX, most = 0;
    for (size_t i = 0; i < shown; i++) {
        least = v[i] < least ? v[i] : least;
        most = v[i] > most ? v[i] : most;
    }
    if (shown == 0)
        return 0;
    uint64_t range = most - least > most / 50 ? most - least : most / 50;
    for (size_t i = 0; i < shown; i++) {
        double part = range ? (double)(v[i] - least) / (double)range : 0;
        ret[i] = (uint8_t)(part * (SPARK_LEVELS - 1) + 0.5);
    }
    return shown;
}

char *spark_text(char out[SPARK_TEXT_MAX], const uint64_t *values, size_t count, size_t width,
                 bool is_ascii)
{
    static const char *const bars[SPARK_LEVELS] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    static const char ascii[] = "_.-:=+*#";
    uint8_t levels[64];
    assert(width <= sizeof levels);
    size_t shown = spark_levels(values, count, width, levels);
    size_t at = width - shown;
    memset(out, ' ', at);
    for (size_t i = 0; i < shown; i++) {
        const char *bar = is_ascii ? &ascii[levels[i]] : bars[levels[i]];
        size_t len = is_ascii ? 1 : strlen(bar);
        memcpy(out + at, bar, len);
        at += len;
    }
    out[at] = '\0';
    return out;
}
