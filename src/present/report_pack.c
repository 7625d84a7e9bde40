/* What the plots draw, in few bytes. */
#include "present/report_html.h"

#include <math.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"

/* Each as the difference from the one before, after dividing by UNIT. */
static json_t *differences(const json_t *list, double unit)
{
    json_t *out = json_array();
    const json_t *v;
    double before = 0;
    size_t i;
    json_array_foreach(list, i, v)
    {
        double now = round(json_number_value(v) / unit);
        json_array_append_new(out, json_integer((json_int_t)(now - before)));
        before = now;
    }
    return out;
}

/* Text of other programs, which the page puts into legends and frames as it is: what would turn it
 * around there is made visible. */
static json_t *harmless(const json_t *text)
{
    struct buf out = {0};
    if (!json_is_string(text))
        return json_null();
    text_escape(&out, json_string_value(text), json_string_length(text));
    json_t *o = json_stringn(out.data ? out.data : "", out.len);
    buf_fini(&out);
    return o;
}

static json_t *pack_series(const json_t *one)
{
    static const char *const kept[] = {"of", "field", "unit", "pid", "id"};
    json_t *o = json_object();
    const char *unit = report_string(one, "unit");
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        if (json_object_get(one, kept[i]))
            json_object_set(o, kept[i], json_object_get(one, kept[i]));
    json_object_set_new(o, "name", harmless(json_object_get(one, "name")));
    json_object_set_new(o, "t", differences(json_object_get(one, "t"), 1e-3));
    json_object_set_new(
        o, "v", differences(json_object_get(one, "v"), unit && strcmp(unit, "B") == 0 ? 1024 : 1));
    return o;
}

/* A frame and what is below it: {"n": name, "w": where, "b": bytes, "k": kind, "c": […]}. */
static json_t *pack_tree(const json_t *node)
{
    const char *kind = report_string(node, "kind"), *file = report_string(node, "file");
    const json_t *child, *line = json_object_get(node, "line");
    json_t *o = json_pack("{s:o,s:O?}", "n", harmless(json_object_get(node, "function")), "b",
                          json_object_get(node, "live_bytes"));
    json_t *children = json_array(), *where = NULL;
    size_t i;
    if (!o)
        return NULL;
    if (file && json_is_integer(line))
        where = json_sprintf("%s:%lld", file, (long long)json_integer_value(line));
    else if (file || report_string(node, "lib"))
        where = json_incref(json_object_get(node, file ? "file" : "lib"));
    if (where)
        json_object_set_new(o, "w", harmless(where));
    json_decref(where);
    if (kind && strcmp(kind, "python") == 0)
        json_object_set_new(o, "k", json_string("p"));
    json_array_foreach(json_object_get(node, "children"), i, child)
        json_array_append_new(children, pack_tree(child));
    if (json_array_size(children))
        json_object_set(o, "c", children);
    json_decref(children);
    return o;
}

static json_t *pack_phases(const json_t *list)
{
    json_t *out = json_array();
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        json_t *o = json_pack("{s:o}", "name", harmless(json_object_get(one, "name")));
        json_object_set(o, "t", json_object_get(one, "t"));
        json_object_set(o, "until", json_object_get(one, "until"));
        json_array_append_new(out, o);
    }
    return out;
}

/* The process whose memory is the question: the one that grows, else the largest. */
static json_t *subject(const json_t *doc)
{
    const json_t *pid = json_object_get(json_object_get(report_tree(doc), "grower"), "pid");
    if (!json_is_integer(pid))
        pid = json_object_get(
            json_array_get(json_object_get(json_object_get(doc, "data"), "processes"), 0), "pid");
    return json_is_integer(pid) ? json_integer(json_integer_value(pid)) : json_null();
}

json_t *report_pack(const json_t *doc)
{
    static const char *const kept[] = {"span_s", "events", "segments"};
    const json_t *data = json_object_get(doc, "data"), *one;
    const json_t *steps = json_object_get(data, "steps");
    const json_t *tree = json_object_get(json_object_get(doc, "heap"), "tree");
    json_t *o = json_object(), *series = json_array();
    size_t i;
    if (!data || !o)
        return o;
    json_array_foreach(json_object_get(data, "series"), i, one)
        json_array_append_new(series, pack_series(one));
    json_object_set_new(o, "series", series);
    json_object_set_new(o, "steps",
                        json_pack("{s:o,s:o}", "t", differences(json_object_get(steps, "t"), 1e-3),
                                  "v", differences(json_object_get(steps, "v"), 1)));
    for (i = 0; i < sizeof kept / sizeof *kept; i++)
        json_object_set(o, kept[i], json_object_get(data, kept[i]));
    json_object_set_new(o, "phases", pack_phases(json_object_get(data, "phases")));
    json_object_set_new(o, "pid", subject(doc));
    if (json_is_object(tree))
        json_object_set_new(o, "flame", pack_tree(tree));
    return o;
}
