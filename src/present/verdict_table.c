/* The table of processes under a verdict: as many columns as the terminal has room for. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "present/cells.h"
#include "present/verdict_private.h"

enum { ROWS_MAX = 16, WHO_COLUMNS_MIN = 20, WIDE_COLUMNS = 96 };

enum column_id { COL_VERDICT, COL_SURE, COL_RATE, COL_FLOOR, COL_PEAK, COL_COUNT };

static const struct cell_column all_columns[COL_COUNT] = {
    [COL_VERDICT] = {"VERDICT", 11, 1, false}, [COL_SURE] = {"SURE", 6, 5, false},
    [COL_RATE] = {"RATE", 13, 2, false},       [COL_FLOOR] = {"FLOOR", 15, 3, false},
    [COL_PEAK] = {"PEAK", 7, 4, false},
};

static const char *size_cell(char out[CELL_MAX], const json_t *bytes)
{
    return json_is_integer(bytes) ? cell_size(out, (uint64_t)json_integer_value(bytes)) : "–";
}

static void rate_cell(char *out, size_t size, const json_t *one)
{
    char rate[CELL_MAX];
    const json_t *per_min = json_object_get(one, "rate_bytes_per_min");
    const json_t *per_step = json_object_get(one, "rate_bytes_per_step");
    const json_t *r = json_is_object(per_min) ? per_min : per_step;
    if (!json_is_object(r)) {
        snprintf(out, size, "–");
        return;
    }
    cell_rate(rate, true, json_number_value(json_object_get(r, "value")));
    snprintf(out, size, "%s%s", rate, r == per_min ? "/min" : "/step");
}

static void cell_of(char *out, size_t size, const json_t *one, enum column_id id)
{
    char first[CELL_MAX], last[CELL_MAX];
    const json_t *confidence = json_object_get(one, "confidence");
    switch (id) {
    case COL_SURE:
        if (json_is_number(confidence))
            snprintf(out, size, "%.0f %%", 100 * json_number_value(confidence));
        else
            snprintf(out, size, "–");
        break;
    case COL_RATE:
        rate_cell(out, size, one);
        break;
    case COL_FLOOR:
        snprintf(out, size, "%s → %s", size_cell(first, summary_at(one, "floor_bytes", "first")),
                 size_cell(last, summary_at(one, "floor_bytes", "last")));
        break;
    case COL_PEAK:
        snprintf(out, size, "%s", size_cell(first, json_object_get(one, "peak_bytes")));
        break;
    default:
        snprintf(out, size, "%s", verdict_word_of(one));
    }
}

/* "606 python (data worker) gone", cut where the line ends. Of a job that is over all are GONE. */
static void put_who(struct page *p, const json_t *one, bool tells_gone)
{
    char name[TEXT_MAX], who[TEXT_MAX + 128], cut[TEXT_MAX], role[CELL_MAX];
    const json_t *pid = json_object_get(one, "pid");
    const char *kind = json_string_value(json_object_get(one, "role"));
    bool is_gone = tells_gone && json_is_false(json_object_get(one, "alive"));
    int len = 0;
    summary_fit(name, 20, json_object_get(one, "name"));
    if (json_is_integer(pid) && strtol(name, NULL, 10) != json_integer_value(pid))
        len = snprintf(who, sizeof who, "%lld ", (long long)json_integer_value(pid));
    len += snprintf(who + len, sizeof who - (size_t)len, "%s", name);
    if (kind && strcmp(kind, "other") != 0)
        len += snprintf(who + len, sizeof who - (size_t)len, " (%s)",
                        cell_role(role, kind, p->width < WIDE_COLUMNS));
    len += snprintf(who + len, sizeof who - (size_t)len, "%s", is_gone ? " gone" : "");
    size_t room = p->width > p->column ? p->width - p->column : 1;
    page_put(p, STYLE_PLAIN, text_fit(cut, sizeof cut, room, who, (size_t)len));
}

static void put_row(struct page *p, const struct cell_column *columns, const json_t *one,
                    bool tells_gone)
{
    char cell[TEXT_MAX];
    size_t column = 0;
    for (int i = 0; i < COL_COUNT; i++) {
        if (!columns[i].is_shown)
            continue;
        cell_of(cell, sizeof cell, one, (enum column_id)i);
        page_put(p, i == COL_VERDICT ? verdict_style_of(one) : STYLE_PLAIN, cell);
        column += (size_t)columns[i].width;
        page_pad(p, column);
    }
    put_who(p, one, tells_gone);
    page_line(p);
}

static void put_titles(struct page *p, const struct cell_column *columns)
{
    size_t column = 0;
    for (int i = 0; i < COL_COUNT; i++) {
        if (!columns[i].is_shown)
            continue;
        page_put(p, STYLE_DIM, columns[i].title);
        column += (size_t)columns[i].width;
        page_pad(p, column);
    }
    page_put(p, STYLE_DIM, "WHO");
    page_line(p);
}

static bool any_alive(const json_t *list)
{
    size_t i;
    const json_t *one;
    json_array_foreach(list, i, one)
    {
        if (!json_is_false(json_object_get(one, "alive")))
            return true;
    }
    return false;
}

static void put_rest(struct page *p, const char *before, long long count, const char *after)
{
    char text[TEXT_MAX];
    if (count <= 0)
        return;
    snprintf(text, sizeof text, "%s%lld %s", before, count, after);
    page_put(p, STYLE_DIM, text);
    page_line(p);
}

void verdict_table(struct page *p, const json_t *doc)
{
    const json_t *list = json_object_get(doc, "processes");
    struct cell_column columns[COL_COUNT];
    size_t count = json_array_size(list);
    if (count > 1) {
        memcpy(columns, all_columns, sizeof columns);
        cell_columns_fit(columns, COL_COUNT, (int)p->width, WHO_COLUMNS_MIN);
        page_line(p);
        put_titles(p, columns);
        bool tells_gone = any_alive(list);
        for (size_t i = 0; i < count && i < ROWS_MAX; i++)
            put_row(p, columns, json_array_get(list, i), tells_gone);
    }
    put_rest(p, "and ", (long long)count - ROWS_MAX, "smaller");
    long long rest = json_integer_value(json_object_get(doc, "not_judged"));
    put_rest(p, "", rest,
             rest == 1 ? "more was too short or too small to list"
                       : "more were too short or too small to list");
}
