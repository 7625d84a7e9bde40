/* Reduces a series to at most SPARK_MAX intervals of equal length. */
#include "run/spark.h"

#include "base/clock.h"
#include "base/json.h"

static const uint64_t FIRST_WIDTH_NS = 250 * NS_PER_MS;
static const double LONGEST_S = 1e9;

void spark_init(struct series *s)
{
    series_init(s, SPARK_MAX, FIRST_WIDTH_NS, 0);
}

static uint64_t spark_width_ns(const struct series *s)
{
    struct series_point last;
    uint64_t width_ns = s && s->width_ns > FIRST_WIDTH_NS ? s->width_ns : FIRST_WIDTH_NS;
    while (series_last(s, &last) && last.t_ns / width_ns >= SPARK_MAX)
        width_ns *= 2;
    return width_ns;
}

json_t *spark_json(const struct series *s)
{
    struct series_point last, max;
    const uint64_t width_ns = spark_width_ns(s);
    if (!series_last(s, &last))
        return json_null();
    json_t *list = json_array();
    for (uint64_t t_ns = 0; t_ns <= last.t_ns; t_ns += width_ns)
        json_array_append_new(list, series_max(s, t_ns, t_ns + width_ns - 1, &max) ? json_u64(max.v)
                                                                                   : json_null());
    return list;
}

json_t *spark_pack(const struct series *s)
{
    return json_pack("{s:f,s:o}", "width_s", (double)spark_width_ns(s) / (double)NS_PER_S, "bytes",
                     spark_json(s));
}

bool spark_unpack(const json_t *doc, struct series *ret)
{
    const double width_s = json_number_value(json_object_get(doc, "width_s"));
    const json_t *list = json_object_get(doc, "bytes");
    if (!(width_s >= 0.01 && width_s <= LONGEST_S) || !json_is_array(list) ||
        json_array_size(list) > SPARK_MAX)
        return false;
    const uint64_t width_ns = (uint64_t)(width_s * (double)NS_PER_S);
    series_fini(ret);
    spark_init(ret);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (json_is_integer(v) && json_integer_value(v) >= 0)
            (void)series_add(ret, i * width_ns, (uint64_t)json_integer_value(v));
    }
    return true;
}
