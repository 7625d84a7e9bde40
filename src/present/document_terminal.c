/* Renders a document for a terminal: wrapped text, tables that fit the width, braille curves. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/number.h"
#include "base/text.h"
#include "present/chart.h"
#include "present/cells.h"
#include "present/document_private.h"

enum { GAP = 2, WIDTH_LEAST = 24, WIDTH_DEFAULT = 80, HEADLINE_COLUMNS = 5 };

struct terminal {
    const struct doc *doc;
    struct buf *out;
    bool is_coloured;
    size_t width, column;
    size_t indent; /* indentation of continuation lines */
    /* The last word. It is not written yet, because the text that follows may continue it. */
    struct buf word;
    size_t word_columns;
    bool is_spaced;       /* true if a space precedes the word */
    size_t label_columns; /* width of the labels of the current facts */
    size_t point_under;   /* column in which the next points begin */
};

/* ---- text ---- */

static void terminal_line(struct terminal *t)
{
    buf_add_byte(t->out, '\n');
    t->column = 0;
}

static void terminal_pad(struct terminal *t, size_t column)
{
    for (; t->column < column; t->column++)
        buf_add_byte(t->out, ' ');
}

static void terminal_toned(const struct terminal *t, struct buf *out, enum doc_tone tone,
                           const char *text, size_t len)
{
    static const char *const codes[] = {[TONE_DIM] = "\033[2m",
                                        [TONE_STRONG] = "\033[1m",
                                        [TONE_GOOD] = "\033[1;32m",
                                        [TONE_BAD] = "\033[1;31m",
                                        [TONE_OPEN] = "\033[1;33m"};
    bool is_coloured = t->is_coloured && tone != TONE_PLAIN && len;
    if (is_coloured)
        buf_add_str(out, codes[tone]);
    buf_add(out, text, len);
    if (is_coloured)
        buf_add_str(out, "\033[0m");
}

static void terminal_put(struct terminal *t, enum doc_tone tone, const char *text)
{
    terminal_toned(t, t->out, tone, text, strlen(text));
    t->column += cell_columns(text);
}

static void terminal_word_end(struct terminal *t)
{
    bool has_text = t->column > t->indent;
    if (!t->word.len)
        return;
    if (has_text && t->is_spaced && t->column + 1 + t->word_columns > t->width)
        terminal_line(t);
    else if (has_text && t->is_spaced)
        terminal_pad(t, t->column + 1);
    terminal_pad(t, t->indent);
    buf_add(t->out, t->word.data, t->word.len);
    t->column += t->word_columns;
    buf_clear(&t->word);
    t->word_columns = 0;
    t->is_spaced = false;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Returns true if the space at AT in TEXT is between a number and its unit, or between the two
 * parts of a duration, such as "3 min 05 s". */
static bool is_unit_space(const char *text, const char *at)
{
    static const char *const units[] = {"B",   "KiB",  "MiB",   "GiB", "TiB", "PiB",
                                        "EiB", "%",    "ns",    "µs",  "ms",  "s",
                                        "min", "step", "steps", "h",   "d"};
    static const char *const parts[] = {" min", " h", " d"};
    size_t len = strcspn(at + 1, " ,;:.)/");
    bool has_digit = at > text && is_digit(at[-1]);
    for (size_t i = 0; has_digit && i < sizeof units / sizeof *units; i++)
        if (strlen(units[i]) == len && memcmp(at + 1, units[i], len) == 0)
            return true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        size_t before = strlen(parts[i]), digits = strspn(at + 1, "0123456789");
        if ((size_t)(at - text) > before && memcmp(at - before, parts[i], before) == 0 &&
            is_digit(at[-(ptrdiff_t)before - 1]) && digits && at[1 + digits] == ' ')
            return is_unit_space(text, at + 1 + digits);
    }
    return false;
}

/* Writes and wraps TEXT, which is already escaped. Does not write the last word yet. */
static void terminal_flow(struct terminal *t, enum doc_tone tone, const char *text)
{
    for (const char *at = text, *from = text;; at++) {
        bool is_break = *at == ' ' && !is_unit_space(text, at);
        if (*at && !is_break)
            continue;
        struct buf piece = {0};
        buf_add(&piece, from, (size_t)(at - from));
        terminal_toned(t, &t->word, tone, piece.data, piece.len);
        t->word_columns += cell_columns(buf_str(&piece));
        buf_fini(&piece);
        if (!*at)
            return;
        terminal_word_end(t);
        t->is_spaced = true;
        from = at + 1;
    }
}

/* Writes the spans from I on, with plain spans in TONE. Returns the index after them. */
static size_t terminal_spans(struct terminal *t, size_t i, enum doc_tone tone)
{
    const struct doc *d = t->doc;
    while (doc_is_span(d, i)) {
        struct buf text = {0};
        const struct doc one = {.nodes = d->nodes, .count = i + 1, .text = d->text};
        enum doc_tone own = d->nodes[i].tone;
        i = doc_spans(&one, i, &text);
        terminal_flow(t, own == TONE_PLAIN ? tone : own, buf_str(&text));
        buf_fini(&text);
    }
    return i;
}

static void terminal_text_end(struct terminal *t)
{
    terminal_word_end(t);
    t->is_spaced = false;
    t->indent = 0;
    terminal_line(t);
}

/* Writes the title, label or line of node I without wrapping. */
static void terminal_put_string(struct terminal *t, enum doc_tone tone, size_t i)
{
    struct buf text = {0};
    text_escape(&text, doc_string(t->doc, i), t->doc->nodes[i].len);
    terminal_put(t, tone, buf_str(&text));
    buf_fini(&text);
}

static void terminal_label(struct terminal *t, size_t i)
{
    const struct doc_node *n = &t->doc->nodes[i];
    terminal_put_string(t, n->kind == NODE_FACT ? n->tone : TONE_DIM, i);
    terminal_pad(t, t->label_columns);
}

/* Measures the labels of consecutive facts, so that their text begins in the same column. */
static void terminal_measure_labels(struct terminal *t, size_t i)
{
    const struct doc *d = t->doc;
    t->label_columns = DOC_LABEL_COLUMNS;
    for (; i < d->count; i++) {
        enum doc_kind kind = d->nodes[i].kind;
        size_t columns = kind == NODE_FACT ? cell_columns(doc_string(d, i)) + 1 : 0;
        if (kind != NODE_FACT && kind != NODE_ITEM && kind != NODE_TEXT && kind != NODE_SWATCH)
            break;
        if (columns > t->label_columns)
            t->label_columns = columns;
    }
}

/* ---- blocks ---- */

static void fit_end(struct buf *text, size_t width)
{
    size_t len = text->len, columns = cell_columns(buf_str(text));
    if (columns <= width)
        return;
    while (len && columns + 1 > width) {
        while (len && ((unsigned char)text->data[--len] & 0xC0) == 0x80)
            ;
        text->data[len] = '\0';
        columns = cell_columns(text->data);
    }
    text->len = len;
    if (width)
        buf_add_str(text, "…");
}

static size_t terminal_block(struct terminal *t, size_t i)
{
    const struct doc_node *n = &t->doc->nodes[i];
    if (n->len) { /* a title */
        struct buf text = {0};
        text_escape(&text, doc_string(t->doc, i), n->len);
        terminal_flow(t, n->tone, buf_str(&text));
        buf_fini(&text);
    }
    i = terminal_spans(t, i + 1, n->tone);
    terminal_text_end(t);
    return i;
}

static size_t terminal_fact(struct terminal *t, size_t i)
{
    const struct doc *d = t->doc;
    bool has_items = false, is_first = true;
    size_t end = i + 1;
    for (; doc_is_span(d, end) || (end < d->count && d->nodes[end].kind == NODE_ITEM); end++)
        has_items = has_items || d->nodes[end].kind == NODE_TEXT;
    if (!has_items)
        return end;
    if (!t->label_columns)
        terminal_measure_labels(t, i);
    terminal_label(t, i);
    t->indent = t->column;
    t->point_under = t->column;
    for (i++; i < end;) {
        struct buf text = {0};
        i += d->nodes[i].kind == NODE_ITEM;
        size_t next = doc_spans(d, i, &text), columns = cell_columns(buf_str(&text));
        if (text.len && !is_first) {
            terminal_flow(t, TONE_PLAIN, ", ");
            if (t->column + 1 + columns >= t->width && t->indent + columns < t->width)
                terminal_line(t);
        }
        is_first = is_first && !text.len;
        terminal_spans(t, i, TONE_PLAIN);
        i = next;
        buf_fini(&text);
    }
    terminal_text_end(t);
    return end;
}

static size_t terminal_headline(struct terminal *t, size_t i)
{
    const char *label = t->doc->nodes[i].name;
    terminal_put(t, TONE_STRONG, label ? label : "");
    terminal_pad(t, label ? HEADLINE_COLUMNS : 0);
    t->indent = t->column;
    t->point_under = t->column;
    i = terminal_spans(t, i + 1, TONE_PLAIN);
    terminal_text_end(t);
    return i;
}

static size_t terminal_point(struct terminal *t, size_t i)
{
    static const char *const signs[] = {
        [POINT_PLAIN] = "·",      [POINT_FOR] = "+",      [POINT_AGAINST] = "−",
        [POINT_ABSENT] = "?",     [POINT_TROUBLE] = "!",  [POINT_DECIDE] = "to decide:",
        [POINT_PLACE] = "-->",    [POINT_SOURCE] = " | ", [POINT_NOTE] = " | ",
        [POINT_HELP] = " = help:"};
    unsigned kind = t->doc->nodes[i].style;
    terminal_pad(t, kind >= POINT_PLACE ? 1 : t->point_under);
    terminal_put(t, kind == POINT_TROUBLE ? TONE_BAD : TONE_DIM, signs[kind]);
    terminal_pad(t, t->column + 1);
    t->indent = kind == POINT_DECIDE ? t->point_under + 3 : t->column;
    if (kind == POINT_SOURCE) {
        struct buf text = {0};
        i = doc_spans(t->doc, i + 1, &text);
        fit_end(&text, t->width - t->column);
        terminal_put(t, TONE_STRONG, buf_str(&text));
        buf_fini(&text);
        t->indent = 0;
        terminal_line(t);
        return i;
    }
    i = terminal_spans(t, i + 1, TONE_PLAIN);
    terminal_text_end(t);
    return i;
}

/* ---- tables ---- */

struct terminal_table {
    const struct doc_column *columns;
    size_t count, left; /* LEFT is the screen column where the table begins */
    size_t width[DOC_COLUMNS_MAX];
    unsigned shown;             /* bits of the columns that are shown */
    size_t last_at, last_width; /* position and width of the last column */
};

/* Makes columns as wide as their content, then hides the least important columns until the others
 * fit. */
static void table_measure(struct terminal *t, size_t i, struct terminal_table *table)
{
    const struct doc *d = t->doc;
    size_t end = doc_table_end(d, i), column = 0, last = table->count - 1;
    table->shown = doc_table_shown(d, i);
    for (size_t k = 0; k < table->count; k++)
        table->width[k] = cell_columns(table->columns[k].title);
    for (size_t k = i + 1; k < end; k++) {
        struct buf text = {0};
        if (d->nodes[k].kind == NODE_ROW)
            column = 0;
        if (d->nodes[k].kind != NODE_CELL || column >= table->count)
            continue;
        doc_spans(d, k + 1, &text);
        size_t columns = cell_columns(buf_str(&text));
        if (columns > table->width[column])
            table->width[column] = columns;
        column++;
        buf_fini(&text);
    }
    for (size_t k = 0; k < table->count; k++)
        if (table->columns[k].most && table->width[k] > table->columns[k].most)
            table->width[k] = table->columns[k].most;
    table->last_width = table->columns[last].least;
    if (table->columns[last].is_number || !table->last_width)
        table->last_width = table->columns[last].is_number ? table->width[last] : WIDTH_LEAST;
    for (;;) {
        size_t used = table->left, gone = last;
        for (size_t k = 0; k < last; k++) {
            const struct doc_column *c = table->columns;
            used += (table->shown & 1u << k) ? table->width[k] + GAP : 0;
            if ((table->shown & 1u << k) && c[k].priority &&
                (gone == last || c[k].priority > c[gone].priority))
                gone = k;
        }
        table->last_at = used;
        if (used + table->last_width <= t->width || gone == last)
            break;
        table->shown &= ~(1u << gone);
    }
    if (!table->columns[last].is_number && t->width > table->last_at + table->last_width)
        table->last_width = t->width - table->last_at;
}

/* Keeps as much of the end of TEXT as fits in WIDTH columns, starting at a path component if
 * possible. */
static void fit_start(struct buf *text, size_t width)
{
    const char *whole = buf_str(text), *at = whole;
    if (cell_columns(whole) <= width)
        return;
    while (*at && cell_columns(at) + 1 > width)
        for (at++; ((unsigned char)*at & 0xC0) == 0x80;)
            at++;
    const char *slash = strchr(at, '/');
    if (slash && slash[1])
        at = slash + 1;
    struct buf cut = {0};
    buf_printf(&cut, "…%s", at);
    buf_fini(text);
    *text = cut;
}

static void table_cell(struct terminal *t, const struct terminal_table *table, size_t column,
                       enum doc_tone tone, struct buf *text)
{
    const struct doc_column *c = &table->columns[column];
    bool is_last = column + 1 == table->count;
    size_t width = is_last ? table->last_width : table->width[column];
    if (is_last && c->cut == CUT_WRAP) {
        t->indent = t->column;
        terminal_flow(t, tone, buf_str(text));
        terminal_word_end(t);
        t->is_spaced = false;
        t->indent = 0;
        return;
    }
    if (c->cut == CUT_START)
        fit_start(text, width);
    else
        fit_end(text, width);
    size_t columns = cell_columns(buf_str(text)), end = t->column + width + GAP;
    if (c->is_number && columns < width)
        terminal_pad(t, t->column + width - columns);
    terminal_put(t, tone, buf_str(text));
    if (!is_last)
        terminal_pad(t, end);
}

static void table_line_end(struct terminal *t)
{
    while (t->out->len && t->out->data[t->out->len - 1] == ' ')
        t->out->len--;
    terminal_line(t);
}

static void table_titles(struct terminal *t, const struct terminal_table *table)
{
    terminal_pad(t, table->left);
    for (size_t k = 0; k < table->count; k++) {
        struct buf title = {0};
        buf_add_str(&title, table->columns[k].title);
        if (table->shown & 1u << k)
            table_cell(t, table, k, TONE_DIM, &title);
        buf_fini(&title);
    }
    table_line_end(t);
}

static size_t terminal_table(struct terminal *t, size_t i)
{
    const struct doc *d = t->doc;
    const struct doc_node *n = &d->nodes[i];
    struct terminal_table table = {.columns = n->data, .count = n->count};
    size_t end = doc_table_end(d, i), column = 0;
    if (end == i + 1)
        return end;
    if (n->len) {
        t->label_columns = DOC_LABEL_COLUMNS;
        terminal_label(t, i);
    }
    table.left = t->column;
    table_measure(t, i, &table);
    table_titles(t, &table);
    for (i++; i < end; i++) {
        struct buf text = {0};
        enum doc_kind kind = d->nodes[i].kind;
        if (kind == NODE_ROW || kind == NODE_BELOW) {
            if (t->column)
                table_line_end(t);
            column = 0;
        }
        if (kind == NODE_ROW)
            terminal_pad(t, table.left);
        if (kind == NODE_CELL || kind == NODE_BELOW)
            doc_spans(d, i + 1, &text);
        if (kind == NODE_CELL && column < table.count && (table.shown & 1u << column))
            table_cell(t, &table, column, d->nodes[i].tone, &text);
        column += kind == NODE_CELL;
        if (kind == NODE_BELOW) {
            terminal_pad(t, table.last_at + GAP);
            fit_end(&text, table.last_width - GAP);
            terminal_put(t, d->nodes[i].tone, buf_str(&text));
        }
        buf_fini(&text);
    }
    if (t->column)
        table_line_end(t);
    return end;
}

/* ---- plots ---- */

enum { PLOT_AXIS = 11, PLOT_ROWS = 10, PLOT_LEAST = 20 };

/* Returns the range of a plot. It covers at least a tenth of the maximum, so that noise does not
 * look like growth. It starts at 0 if the minimum is below a quarter of the maximum. */
static struct braille_range plot_range(const struct doc_plot *p)
{
    struct braille_range r = {
        .t_until = (double)p->span_ns, .v_from = (double)INFINITY, .v_until = (double)p->most};
    for (size_t i = 0; i < p->count; i++) {
        r.v_from = fmin(r.v_from, (double)p->points[i].v);
        r.v_until = fmax(r.v_until, (double)p->points[i].v);
    }
    if (r.v_until - r.v_from < r.v_until / 10)
        r.v_from = r.v_until * 0.9;
    if (r.v_from < r.v_until / 4)
        r.v_from = 0;
    return r;
}

/* Writes one letter under each event: E epoch, e evaluation, c checkpoint, | segment. */
static void plot_events(struct terminal *t, const struct doc_plot *p, size_t columns)
{
    char row[BRAILLE_WIDTH + 1];
    memset(row, ' ', columns);
    row[columns] = '\0';
    for (size_t i = 0; i < p->event_count; i++) {
        double share = p->span_ns ? (double)p->events[i].t_ns / (double)p->span_ns : 0;
        size_t at = number_to_u64(share * (double)(columns - 1));
        if (at < columns && row[at] != 'E' && row[at] != '|')
            row[at] = p->events[i].letter;
    }
    if (!p->event_count)
        return;
    terminal_pad(t, PLOT_AXIS);
    terminal_put(t, TONE_DIM, row);
    terminal_line(t);
    terminal_pad(t, PLOT_AXIS);
    terminal_put(t, TONE_DIM, "E epoch  e evaluation  c checkpoint  | restarted");
    terminal_line(t);
}

static void terminal_plot(struct terminal *t, size_t i)
{
    const struct doc_plot *p = t->doc->nodes[i].data;
    size_t columns = t->width > PLOT_AXIS + PLOT_LEAST ? t->width - PLOT_AXIS : PLOT_LEAST;
    struct braille_range range = plot_range(p);
    char time[TEXT_TIME_MAX];
    struct braille b;
    if (p->count < 2)
        return;
    braille_init(&b, columns < BRAILLE_WIDTH ? columns : BRAILLE_WIDTH, PLOT_ROWS);
    braille_draw(&b, &range, p->points, p->count);
    terminal_pad(t, PLOT_AXIS);
    terminal_put_string(t, TONE_STRONG, i);
    terminal_line(t);
    for (size_t row = 0; row < b.rows; row++) {
        char text[BRAILLE_WIDTH * 3 + 1], size[TEXT_SIZE_MAX];
        double v = row == 0 ? range.v_until : row + 1 == b.rows ? range.v_from : -1;
        text_size(size, number_to_u64(v));
        terminal_pad(t, v >= 0 ? PLOT_AXIS - 1 - strlen(size) : PLOT_AXIS);
        terminal_put(t, TONE_DIM, v >= 0 ? size : "");
        terminal_pad(t, PLOT_AXIS);
        terminal_put(t, TONE_PLAIN, braille_row(&b, row, text));
        terminal_line(t);
    }
    terminal_pad(t, PLOT_AXIS);
    terminal_put(t, TONE_DIM, "0");
    text_duration(time, p->span_ns);
    terminal_pad(t, PLOT_AXIS + b.columns - (strlen(time) < b.columns ? strlen(time) : b.columns));
    terminal_put(t, TONE_DIM, time);
    terminal_line(t);
    plot_events(t, p, b.columns);
    terminal_line(t);
}

/* ---- the complete document ---- */

/* Returns true at the beginning of the output and after an empty line. */
static bool terminal_ends_blank(const struct terminal *t)
{
    const struct buf *out = t->out;
    return out->len < 2 || memcmp(out->data + out->len - 2, "\n\n", 2) == 0;
}

static size_t terminal_node(struct terminal *t, size_t i)
{
    const struct doc_node *n = &t->doc->nodes[i];
    if (n->kind != NODE_FACT)
        t->label_columns = 0;
    switch (n->kind) {
    case NODE_SECTION:
    case NODE_HEADING:
        if (!terminal_ends_blank(t) && (n->len || n->kind == NODE_SECTION))
            terminal_line(t);
        t->point_under = 0;
        return n->len ? terminal_block(t, i) : i + 1;
    case NODE_TITLE:
    case NODE_PARA:
        if (n->kind == NODE_PARA && n->style == PARA_IS_HEADLINE)
            return terminal_headline(t, i);
        t->point_under = 3;
        return terminal_block(t, i);
    case NODE_SPACE:
        terminal_line(t);
        return i + 1;
    case NODE_FACT:
        return terminal_fact(t, i);
    case NODE_POINT:
        return terminal_point(t, i);
    case NODE_CODE:
        terminal_pad(t, GAP);
        terminal_put_string(t, TONE_PLAIN, i);
        terminal_line(t);
        return i + 1;
    case NODE_TABLE:
        return terminal_table(t, i);
    case NODE_PLOT:
        terminal_plot(t, i);
        return i + 1;
    default:
        return i + 1;
    }
}

void doc_terminal(struct buf *out, const struct doc *d, bool colour, size_t width)
{
    const struct doc visible = doc_visible(d, DOC_TERMINAL, false);
    struct terminal t = {
        .doc = &visible, .out = out, .is_coloured = colour, .width = width ? width : WIDTH_DEFAULT};
    t.width = t.width < WIDTH_LEAST ? WIDTH_LEAST : t.width;
    for (size_t i = 0; i < visible.count;)
        i = terminal_node(&t, i);
    out->failed = out->failed || visible.text.failed || t.word.failed;
    buf_fini(&t.word);
    free(visible.nodes);
}
