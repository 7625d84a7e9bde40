/* The small picture of a run's memory: pieces of time that double when there are too many. */
#include "engine/spark.h"

#include "base/clock.h"
#include "base/json.h"

enum {
    WIDTH_FIRST_MS = 250,
    WIDTHS = 30, /* that are good for centuries */
};

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

json_t *spark_pack(const struct spark *s)
{
    return json_pack("{s:f,s:o}", "width_s", (double)s->width_ns / 1e9, "bytes", spark_json(s));
}

bool spark_unpack(const json_t *doc, struct spark *ret)
{
    struct spark s = {.width_ns = WIDTH_FIRST_MS * NS_PER_MS};
    const double width_s = json_number_value(json_object_get(doc, "width_s"));
    const json_t *list = json_object_get(doc, "bytes");
    for (int i = 0; i < WIDTHS && (double)s.width_ns / 1e9 < width_s * 0.99; i++)
        s.width_ns *= 2;
    const double own_s = (double)s.width_ns / 1e9;
    if (own_s < width_s * 0.99 || own_s > width_s * 1.01 || !json_is_array(list) ||
        json_array_size(list) > SPARK_MAX)
        return false;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        bool is_known = json_is_integer(v) && json_integer_value(v) >= 0;
        s.bytes[s.count++] = is_known ? (uint64_t)json_integer_value(v) : UINT64_MAX;
    }
    *ret = s;
    return true;
}
