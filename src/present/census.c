/* A census as tables: tensors, objects, who holds the largest, what grew, what it cost. */
#include "present/census.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "present/page.h"

static json_int_t integer(const json_t *o, const char *key)
{
    return json_integer_value(json_object_get(o, key));
}

static const char *size_of(char out[TEXT_SIZE_MAX], const json_t *o, const char *key)
{
    const char *text = summary_size(out, json_object_get(o, key));
    return text ? text : "–";
}

char *census_tensor_name(const json_t *row)
{
    const char *device = json_string_value(json_object_get(row, "device"));
    const char *dtype = json_string_value(json_object_get(row, "dtype"));
    const json_t *shape = json_object_get(row, "shape"), *n;
    struct buf name = {0};
    size_t i;
    buf_printf(&name, "%s %s [", device ? device : "?", dtype ? dtype : "?");
    json_array_foreach(shape, i, n)
        buf_printf(&name, "%s%lld", i ? ", " : "", (long long)json_integer_value(n));
    buf_printf(&name, "]%s%s%s",
               json_is_true(json_object_get(row, "requires_grad")) ? " requires_grad" : "",
               json_is_true(json_object_get(row, "is_grad")) ? " gradient" : "",
               json_is_false(json_object_get(row, "is_leaf")) ? " of a graph" : "");
    char *text = name.failed ? NULL : strdup(buf_str(&name));
    buf_fini(&name);
    return text;
}

static void put_label(struct page *p, const char *label)
{
    page_put(p, STYLE_DIM, label);
    page_pad(p, LABEL_COLUMNS);
}

/* Text of another program, on as many lines as it takes. */
static void put_raw(struct page *p, const char *s)
{
    struct buf text = {0};
    text_escape(&text, s ? s : "", s ? strlen(s) : 0);
    page_words(p, STYLE_PLAIN, buf_str(&text));
    buf_fini(&text);
}

static void put_row(struct page *p, const char *size, const char *count, const char *what)
{
    char cell[96];
    snprintf(cell, sizeof cell, "%12s %10s  ", size, count);
    page_put(p, STYLE_PLAIN, cell);
    p->indent = 25;
    put_raw(p, what);
    p->indent = 0;
    page_line(p);
}

static void put_tensors(struct page *p, const json_t *c, size_t top)
{
    char size[TEXT_SIZE_MAX], text[128], count[24];
    const json_t *list = json_object_get(c, "tensors"), *row;
    size_t i;
    put_label(p, "tensors");
    if (!json_is_true(json_object_get(c, "has_torch"))) {
        page_put(p, STYLE_PLAIN, "torch is not imported there");
        page_line(p);
        return;
    }
    snprintf(text, sizeof text, "%lld, %s", (long long)integer(c, "tensor_count"),
             size_of(size, c, "tensor_bytes"));
    page_put(p, STYLE_STRONG, text);
    page_line(p);
    json_array_foreach(list, i, row)
    {
        char *name = i < top ? census_tensor_name(row) : NULL;
        snprintf(count, sizeof count, "%lld", (long long)integer(row, "count"));
        if (name)
            put_row(p, size_of(size, row, "bytes"), count, name);
        free(name);
    }
}

static void put_objects(struct page *p, const json_t *c, size_t top)
{
    char size[TEXT_SIZE_MAX], text[128], count[24];
    const json_t *row;
    size_t i;
    put_label(p, "objects");
    snprintf(text, sizeof text, "%lld, %s%s", (long long)integer(c, "object_count"),
             size_of(size, c, "object_bytes"),
             json_is_true(json_object_get(c, "is_sampled")) ? " (estimated from a part)" : "");
    page_put(p, STYLE_STRONG, text);
    page_line(p);
    json_array_foreach(json_object_get(c, "objects"), i, row)
    {
        if (i >= top)
            break;
        snprintf(count, sizeof count, "%lld", (long long)integer(row, "count"));
        put_row(p, size_of(size, row, "bytes"), count,
                json_string_value(json_object_get(row, "type")));
    }
}

static void put_holders(struct page *p, const json_t *c)
{
    char size[TEXT_SIZE_MAX];
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(c, "largest"), i, row)
    {
        struct buf text = {0};
        const char *what = json_string_value(json_object_get(row, "what"));
        const char *chain = json_string_value(json_object_get(row, "chain"));
        if (integer(row, "count") > 1)
            buf_printf(&text, "%lld × ", (long long)integer(row, "count"));
        buf_printf(&text, "%s, %s: %s", what ? what : "?", size_of(size, row, "bytes"),
                   chain ? chain : "?");
        put_label(p, i == 0 ? "held by" : "");
        put_raw(p, buf_str(&text));
        page_line(p);
        buf_fini(&text);
    }
}

static void put_growth(struct page *p, const json_t *one, size_t top)
{
    char size[TEXT_SIZE_MAX], text[128], count[24];
    const json_t *since = json_object_get(one, "since"), *row;
    const json_t *step = json_object_get(since, "step");
    size_t i, shown = 0;
    put_label(p, "growth");
    if (!json_is_object(since)) {
        page_words(p, STYLE_PLAIN, "none known: this is the first census of this process");
        page_line(p);
        return;
    }
    if (json_is_integer(step))
        snprintf(text, sizeof text, "since the census at step %lld",
                 (long long)json_integer_value(step));
    else
        snprintf(text, sizeof text, "since the census before");
    page_put(p, STYLE_STRONG, text);
    page_line(p);
    json_array_foreach(json_object_get(one, "growth"), i, row)
    {
        if (shown == top || integer(row, "bytes") < 0)
            break;
        snprintf(count, sizeof count, "%+lld", (long long)integer(row, "count"));
        put_row(p, text_size_signed(size, integer(row, "bytes")), count,
                json_string_value(json_object_get(row, "name")));
        shown++;
    }
    if (!shown)
        put_row(p, "0 B", "0", "nothing grew");
}

static void put_memory(struct page *p, const json_t *c)
{
    static const struct {
        const char *key, *text;
    } figures[] = {{"heap_live_bytes", "live heap"},
                   {"cuda_allocated_bytes", "cuda allocated"},
                   {"cuda_reserved_bytes", "cuda reserved"},
                   {"pinned_host_bytes", "pinned"}};
    char size[TEXT_SIZE_MAX];
    page_fact(p, "memory");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        const char *text = summary_size(size, summary_at(c, "memory", figures[i].key));
        if (text)
            page_addf(p, "%s %s", figures[i].text, text);
    }
    page_fact_end(p);
}

static void put_head(struct page *p, const json_t *one, const json_t *c)
{
    char cost[TEXT_TIME_MAX];
    const json_t *rank = json_object_get(c, "rank"), *step = json_object_get(c, "step");
    const char *at = json_string_value(json_object_get(c, "at"));
    double cost_s = json_number_value(json_object_get(c, "cost_s"));
    struct buf text = {0};
    buf_printf(&text, "process %lld", (long long)integer(one, "pid"));
    if (json_is_integer(rank))
        buf_printf(&text, " (rank %lld)", (long long)json_integer_value(rank));
    if (json_is_integer(step))
        buf_printf(&text, ", step %lld", (long long)json_integer_value(step));
    page_put(p, STYLE_STRONG, buf_str(&text));
    buf_clear(&text);
    buf_printf(&text, ": taken %s, at a cost of %s",
               at && strcmp(at, "step") == 0     ? "where the step had ended"
               : at && strcmp(at, "thread") == 0 ? "beside whatever it was doing"
                                                 : "where it called for it",
               text_duration(cost, cost_s > 0 && cost_s < 1e6 ? (uint64_t)(cost_s * 1e9) : 0));
    page_words(p, STYLE_PLAIN, buf_str(&text));
    page_line(p);
    buf_fini(&text);
}

static void put_process(struct page *p, const json_t *one, size_t top)
{
    const json_t *c = json_object_get(one, "census");
    const char *error = json_string_value(json_object_get(one, "error"));
    char text[64];
    if (!json_is_object(c)) {
        snprintf(text, sizeof text, "process %lld", (long long)integer(one, "pid"));
        page_put(p, STYLE_STRONG, text);
        page_put(p, STYLE_PLAIN, ": ");
        put_raw(p, error ? error : "no census");
        page_line(p);
        return;
    }
    put_head(p, one, c);
    put_memory(p, c);
    put_tensors(p, c, top);
    put_objects(p, c, top);
    put_holders(p, c);
    put_growth(p, one, top);
    put_label(p, "kept");
    put_raw(p, json_string_value(json_object_get(one, "path")));
    page_line(p);
}

void census_text(struct buf *out, const json_t *doc, size_t top, bool colour, size_t width)
{
    struct page p = {.out = out, .is_coloured = colour, .width = width};
    const json_t *one;
    size_t i;
    json_array_foreach(json_object_get(doc, "processes"), i, one)
    {
        if (i > 0)
            page_line(&p);
        put_process(&p, one, top);
    }
}
