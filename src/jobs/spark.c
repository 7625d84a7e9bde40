/* The small picture of a run's memory: pieces of time that double when there are too many. */
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "jobs/jobs_private.h"

enum { WIDTH_FIRST_MS = 250 };

static uint64_t larger(uint64_t a, uint64_t b)
{
    if (a == UINT64_MAX || b == UINT64_MAX)
        return a == UINT64_MAX ? b : a;
    return a > b ? a : b;
}

static void halve(struct spark *s)
{
    size_t half = (s->count + 1) / 2;
    for (size_t i = 0; i < half; i++)
        s->bytes[i] =
            larger(s->bytes[2 * i], 2 * i + 1 < s->count ? s->bytes[2 * i + 1] : UINT64_MAX);
    s->count = half;
    s->width_ns *= 2;
}

void spark_add(struct spark *s, uint64_t t_ns, uint64_t bytes)
{
    if (s->width_ns == 0)
        s->width_ns = WIDTH_FIRST_MS * NS_PER_MS;
    while (t_ns / s->width_ns >= SPARK_MAX)
        halve(s);
    size_t at = (size_t)(t_ns / s->width_ns);
    while (s->count <= at)
        s->bytes[s->count++] = UINT64_MAX;
    s->bytes[at] = larger(s->bytes[at], bytes);
}

json_t *spark_json(const struct spark *s)
{
    json_t *list = s->count ? json_array() : json_null();
    for (size_t i = 0; i < s->count; i++)
        json_array_append_new(list,
                              s->bytes[i] == UINT64_MAX ? json_null() : json_u64(s->bytes[i]));
    return list;
}
