/* A heap profile as a table, a tree, or a fact of the summary. */
#include "present/heap.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/number.h"
#include "base/text.h"
#include "profile/words.h"
#include "present/cells.h"
#include "present/document.h"
#include "present/heap_where.h"
#include "present/page.h"

enum { FIGURE_WIDTH = 9, VERDICT_WIDTH = 11, WHERE_MIN = 24, WHERE_WISH = 36 };

static double number(const json_t *o, const char *key)
{
    return json_number_value(json_object_get(o, key));
}

static const char *string(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* ---- the table ---- */

enum column {
    COLUMN_GROWTH,
    COLUMN_STEP,
    COLUMN_MINUTE,
    COLUMN_LIVE,
    COLUMN_BOUNDS,
    COLUMN_OBJECTS,
    COLUMN_AGE,
    COLUMN_VERDICT,
    COLUMNS
};

struct columns {
    struct cell_column at[COLUMNS];
    size_t where; /* at which column it begins */
    size_t where_width;
};

static void choose_columns(struct columns *c, const char *meaning, bool has_steps, size_t width)
{
    size_t title = cell_columns(meaning) + 1;
    int growth = title > FIGURE_WIDTH ? (int)title : FIGURE_WIDTH;
    *c = (struct columns){.at = {
                              [COLUMN_GROWTH] = {meaning, growth, 1, false},
                              [COLUMN_STEP] = {"per step", FIGURE_WIDTH, has_steps ? 3 : 0, false},
                              [COLUMN_MINUTE] = {"per min", FIGURE_WIDTH, has_steps ? 7 : 3, false},
                              [COLUMN_LIVE] = {"live", FIGURE_WIDTH, 2, false},
                              [COLUMN_BOUNDS] = {"± 95 %", FIGURE_WIDTH, 5, false},
                              [COLUMN_OBJECTS] = {"objects", FIGURE_WIDTH, 8, false},
                              [COLUMN_AGE] = {"age", FIGURE_WIDTH - 3, 6, false},
                              [COLUMN_VERDICT] = {"verdict", VERDICT_WIDTH, 4, false},
                          }};
    c->where = (size_t)cell_columns_fit(c->at, COLUMNS, (int)width, WHERE_WISH) + 2;
    c->where_width = width > c->where + WHERE_MIN ? width - c->where : WHERE_MIN;
}

static void put_figure(struct page *p, enum style style, const char *text, size_t width)
{
    size_t have = cell_columns(text);
    page_pad(p, p->column + (have < width ? width - have : 0));
    page_put(p, style, text);
}

static enum style verdict_style(const char *word)
{
    if (strcmp(word, "leaking") == 0 || strcmp(word, "stepping") == 0)
        return STYLE_BAD;
    if (strcmp(word, "filling") == 0 || strcmp(word, "undecided") == 0)
        return STYLE_STRONG;
    return STYLE_PLAIN;
}

static char *count_text(char out[CELL_MAX], double n)
{
    static const char units[] = " KMGT";
    size_t u = 0;
    for (; n >= 9999.5 && units[u + 1]; u++)
        n /= 1000;
    snprintf(out, CELL_MAX, "%.0f%.*s", n, u > 0, &units[u]);
    return out;
}

/* "30 s", "12 min": one unit is enough for an age. */
static char *age_text(char out[CELL_MAX], double s)
{
    if (s < 100)
        snprintf(out, CELL_MAX, "%.0fs", s);
    else if (s < 6000)
        snprintf(out, CELL_MAX, "%.0fm", s / 60);
    else if (s < 200000)
        snprintf(out, CELL_MAX, "%.0fh", s / 3600);
    else
        snprintf(out, CELL_MAX, "%.0fd", s / 86400);
    return out;
}

static void put_cell(struct page *p, const struct columns *c, enum column which, enum style style,
                     const char *text)
{
    const struct cell_column *column = &c->at[which];
    if (!column->is_shown)
        return;
    if (which != COLUMN_VERDICT) {
        put_figure(p, style, text, (size_t)column->width);
        return;
    }
    size_t end = p->column + (size_t)column->width;
    page_pad(p, p->column + 2);
    page_put(p, style, text);
    page_pad(p, end);
}

static void put_head(struct page *p, const struct columns *c)
{
    for (enum column i = 0; i < COLUMNS; i++)
        put_cell(p, c, i, STYLE_DIM, c->at[i].title);
    page_pad(p, c->where);
    page_put(p, STYLE_DIM, "where");
    page_line(p);
}

static void put_below(struct page *p, const struct columns *c, enum style style, const char *text)
{
    page_pad(p, c->where + 2);
    page_put(p, style, text);
    page_line(p);
}

static void put_stack(struct page *p, const struct columns *c, const json_t *stack)
{
    char text[HEAP_WHERE_SIZE];
    const json_t *frame;
    size_t i;
    json_array_foreach(stack, i, frame)
    {
        put_below(p, c, STYLE_DIM, heap_where_text(text, frame, c->where_width - 2));
    }
}

static void put_callers(struct page *p, const struct columns *c, const json_t *row)
{
    char line[HEAP_WHERE_SIZE];
    struct buf text = {0};
    heap_row_add_callers(&text, row, c->where_width - 2);
    if (text.len)
        put_below(p, c, STYLE_PLAIN, heap_where_fit(line, &text, c->where_width - 2));
    buf_fini(&text);
}

/* The lines of a merged row, those that grew most. */
static void put_places(struct page *p, const struct columns *c, const json_t *row)
{
    char cell[CELL_MAX], line[HEAP_WHERE_SIZE];
    const json_t *place;
    size_t i;
    json_array_foreach(json_object_get(row, "places"), i, place)
    {
        struct buf text = {0};
        buf_printf(&text, "%7s ", cell_rate(cell, true, number(place, "growth_bytes")));
        heap_where_add(&text, json_object_get(place, "where"), 0);
        put_below(p, c, STYLE_DIM, heap_where_fit(line, &text, c->where_width - 2));
    }
    json_int_t more = json_integer_value(json_object_get(row, "place_count")) - (json_int_t)i;
    snprintf(line, sizeof line, "and %lld more line%s", (long long)more, more == 1 ? "" : "s");
    if (more > 0)
        put_below(p, c, STYLE_DIM, line);
}

/* The C function below a Python line, and by how many ways it was reached. */
static void put_native(struct page *p, const struct columns *c, const json_t *row)
{
    char text[HEAP_WHERE_SIZE], line[HEAP_WHERE_SIZE + 64];
    const json_t *native = json_object_get(row, "native");
    const char *kind = string(json_object_get(row, "where"), "kind");
    json_int_t stacks = json_integer_value(json_object_get(row, "stacks"));
    bool is_told = heap_where_has_name(native) && kind && strcmp(kind, "python") == 0;
    if (!is_told && stacks < 2)
        return;
    heap_where_text(text, native, c->where_width > 24 ? c->where_width - 18 : c->where_width);
    if (is_told && stacks > 1)
        snprintf(line, sizeof line, "in %s, %lld stacks", text, (long long)stacks);
    else if (is_told)
        snprintf(line, sizeof line, "in %s", text);
    else
        snprintf(line, sizeof line, "%lld stacks", (long long)stacks);
    put_below(p, c, STYLE_DIM, line);
}

static void put_figures(struct page *p, const struct columns *c, const json_t *row)
{
    char cell[CELL_MAX];
    const json_t *live = json_object_get(row, "live"), *verdict = json_object_get(row, "verdict");
    const json_t *step = json_object_get(verdict, "rate_bytes_per_step");
    const json_t *minute = json_object_get(verdict, "rate_bytes_per_min");
    const char *word = string(verdict, "verdict");
    double bytes = number(live, "bytes");
    put_cell(p, c, COLUMN_GROWTH, STYLE_STRONG, cell_rate(cell, true, number(row, "growth_bytes")));
    put_cell(p, c, COLUMN_STEP, STYLE_PLAIN,
             cell_rate(cell, json_is_object(step), number(step, "value")));
    put_cell(p, c, COLUMN_MINUTE, STYLE_PLAIN,
             cell_rate(cell, json_is_object(minute), number(minute, "value")));
    put_cell(p, c, COLUMN_LIVE, STYLE_PLAIN, cell_size(cell, number_to_u64(bytes)));
    put_cell(p, c, COLUMN_BOUNDS, STYLE_PLAIN,
             cell_size(cell, number_to_u64(number(live, "high") - bytes)));
    put_cell(p, c, COLUMN_OBJECTS, STYLE_PLAIN, count_text(cell, number(row, "live_objects")));
    put_cell(p, c, COLUMN_AGE, STYLE_PLAIN, age_text(cell, number(row, "age_s")));
    put_cell(p, c, COLUMN_VERDICT, verdict_style(word ? word : ""), word ? word : "");
}

static void put_row(struct page *p, const struct columns *c, const json_t *row)
{
    char text[HEAP_WHERE_SIZE];
    put_figures(p, c, row);
    page_pad(p, c->where);
    page_put(p, STYLE_PLAIN, heap_where_text(text, heap_row_head(row), c->where_width));
    page_line(p);
    if (json_object_get(row, "stack")) {
        put_stack(p, c, json_object_get(row, "stack"));
        return;
    }
    put_callers(p, c, row);
    if (heap_row_is_merged(row))
        put_places(p, c, row);
    else
        put_native(p, c, row);
}

/* ---- what it cost ---- */

static void put_drops(struct page *p, const json_t *cost)
{
    json_t *drops = json_object_get(cost, "drops"), *count;
    const char *key;
    json_object_foreach(drops, key, count)
    {
        const char *text = profile_drop_text(key);
        page_fact(p, "dropped");
        page_addf(p, "%" JSON_INTEGER_FORMAT " × %s", json_integer_value(count), text ? text : key);
        page_fact_end(p);
    }
}

static void put_cost(struct page *p, const json_t *doc)
{
    const json_t *cost = json_object_get(doc, "cost"), *python = json_object_get(cost, "python");
    char size[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    double hook_s = number(cost, "hook_s"), span_s = number(doc, "span_s");
    double now = number(cost, "interval_bytes"), base = number(cost, "base_interval_bytes");
    page_fact(p, "cost");
    page_addf(p, "%.0f samples", number(cost, "samples"));
    page_addf(p, "%s in the job's own time (%.2g %%)",
              text_duration(time, number_to_u64(hook_s * 1e9)),
              span_s > 0 ? hook_s / span_s * 100 : 0);
    page_addf(p, "one in %s", text_size(size, number_to_u64(now > 0 ? now : base)));
    if (now > base)
        page_addf(p, "coarser than %s to stay cheap", text_size(size, number_to_u64(base)));
    page_fact_end(p);
    if (string(python, "version")) {
        page_fact(p, "Python");
        page_addf(p, "%s", string(python, "version"));
        page_addf(p, "%s", string(python, "state"));
        page_addf(p, "small objects %s",
                  json_is_true(json_object_get(python, "small_objects")) ? "counted"
                                                                         : "not counted");
        page_fact_end(p);
    }
    put_drops(p, cost);
}

static void put_title(struct page *p, const json_t *doc)
{
    char bytes[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    const json_t *live = json_object_get(doc, "live"), *steps = json_object_get(doc, "steps");
    page_fact(p, "heap");
    page_addf(p, "process %" JSON_INTEGER_FORMAT, json_integer_value(json_object_get(doc, "pid")));
    page_addf(p, "%s live (%s – %s)", summary_size(bytes, json_object_get(live, "bytes")),
              summary_size(low, json_object_get(live, "low")),
              summary_size(high, json_object_get(live, "high")));
    page_addf(p, "%s allocated in %s", summary_size(bytes, json_object_get(doc, "allocated_bytes")),
              text_duration(time, number_to_u64(number(doc, "span_s") * 1e9)));
    if (json_is_object(steps))
        page_addf(p, "steps %" JSON_INTEGER_FORMAT " to %" JSON_INTEGER_FORMAT,
                  json_integer_value(json_object_get(steps, "first")),
                  json_integer_value(json_object_get(steps, "last")));
    if (number(doc, "before_end_s") > 0)
        page_addf(p, "as it was %s before it ended",
                  text_duration(time, number_to_u64(number(doc, "before_end_s") * 1e9)));
    page_fact_end(p);
}

static void put_table(struct page *p, const struct columns *c, const json_t *doc)
{
    const json_t *row;
    char text[64];
    size_t i;
    put_head(p, c);
    json_array_foreach(json_object_get(doc, "rows"), i, row) put_row(p, c, row);
    json_int_t more = json_integer_value(json_object_get(doc, "row_count")) - (json_int_t)i;
    if (more <= 0)
        return;
    snprintf(text, sizeof text, "and %lld more (--top N)", (long long)more);
    page_pad(p, c->where);
    page_put(p, STYLE_DIM, text);
    page_line(p);
}

/* A stack tells who made memory, not who keeps it. */
static void put_kept(struct page *p, const json_t *doc)
{
    const json_t *one;
    struct buf harmless = {0};
    size_t i;
    json_array_foreach(json_object_get(doc, "kept_by"), i, one)
    {
        const json_t *text = json_object_get(one, "text");
        buf_clear(&harmless);
        text_escape(&harmless, json_string_value(text), json_string_length(text));
        page_fact(p, i ? "" : "kept by");
        page_add(p, STYLE_PLAIN, buf_str(&harmless));
        page_fact_end(p);
    }
    buf_fini(&harmless);
}

void heap_text(struct buf *out, const json_t *doc, const char *meaning, bool colour, size_t width)
{
    struct page p = {.out = out, .is_coloured = colour, .width = width ? width : 80};
    struct columns c;
    choose_columns(&c, meaning, json_is_object(json_object_get(doc, "steps")), p.width);
    put_title(&p, doc);
    page_line(&p);
    if (json_array_size(json_object_get(doc, "rows"))) {
        put_table(&p, &c, doc);
    } else {
        page_put(&p, STYLE_PLAIN, "nothing that was sampled is alive");
        page_line(&p);
    }
    page_line(&p);
    put_kept(&p, doc);
    put_cost(&p, doc);
}

/* ---- the tree ---- */

enum {
    BRANCH_WIDTH = FIGURE_WIDTH - 1,
    SHARE_WIDTH = 7,
    BRANCH_MIN = BRANCH_WIDTH + SHARE_WIDTH + 2 + WHERE_MIN + 1
};

static void put_branch(struct page *p, const json_t *node, double whole, size_t depth)
{
    char cell[CELL_MAX], text[HEAP_WHERE_SIZE], share[16];
    const json_t *child;
    size_t i, room = p->width > BRANCH_MIN ? p->width - BRANCH_MIN : 0;
    size_t most = room < p->width / 2 ? room : p->width / 2;
    size_t indent = depth * 2 < most ? depth * 2 : most;
    double bytes = number(node, "live_bytes");
    put_figure(p, STYLE_STRONG, cell_size(cell, number_to_u64(bytes)), BRANCH_WIDTH);
    snprintf(share, sizeof share, "%.0f %%", whole > 0 ? bytes / whole * 100 : 0);
    put_figure(p, STYLE_DIM, share, SHARE_WIDTH);
    page_pad(p, p->column + 2 + indent);
    page_put(
        p, STYLE_PLAIN,
        depth ? heap_where_text(text, node,
                                p->width > p->column + WHERE_MIN ? p->width - p->column : WHERE_MIN)
              : "all");
    page_line(p);
    json_array_foreach(json_object_get(node, "children"), i, child)
        put_branch(p, child, whole, depth + 1);
}

void heap_tree_text(struct buf *out, const json_t *doc, bool colour, size_t width)
{
    struct page p = {.out = out, .is_coloured = colour, .width = width ? width : 80};
    put_branch(&p, doc, number(doc, "live_bytes"), 0);
}

/* ---- the summary ---- */

/* "figure.py:71 draw ← train.py:41 plot ← main", on a line of its own if need be. */
static char *path_text(char out[HEAP_WHERE_SIZE], const json_t *row, size_t width)
{
    size_t room = width > LABEL_COLUMNS + WHERE_MIN ? width - LABEL_COLUMNS : WHERE_MIN;
    struct buf text = {0}, callers = {0};
    heap_where_add(&text, heap_row_head(row), room / 2);
    heap_row_add_callers(&callers, row, room > text.len ? room - text.len - 1 : 0);
    if (callers.len)
        buf_printf(&text, " %s", buf_str(&callers));
    buf_fini(&callers);
    return heap_where_fit(out, &text, room);
}

void heap_summary(struct doc *d, const json_t *growing)
{
    char size[TEXT_SIZE_MAX], text[HEAP_WHERE_SIZE];
    const json_t *row;
    size_t i;
    json_array_foreach(growing, i, row)
    {
        const json_t *verdict = json_object_get(row, "verdict");
        const json_t *rate = json_object_get(verdict, "rate_bytes_per_step");
        doc_fact(d, i ? "" : "grows");
        doc_itemf(d, TONE_STRONG, "%s",
                  text_size_signed(size, number_to_i64(number(row, "growth_bytes"))));
        if (json_is_object(rate))
            doc_itemf(d, TONE_PLAIN, "%s a step",
                      text_size_signed(size, number_to_i64(number(rate, "value"))));
        doc_itemf(d, TONE_PLAIN, "%s", string(verdict, "verdict"));
        doc_itemf(d, TONE_PLAIN, "%s", path_text(text, row, 80));
    }
}
