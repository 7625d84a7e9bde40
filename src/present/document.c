/* Builds a document: a list of nodes and one buffer of text. */
#include "present/document.h"

#include <assert.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/text.h"
#include "present/document_private.h"

void doc_fini(struct doc *d)
{
    for (size_t i = 0; i < d->count; i++)
        free(d->nodes[i].data);
    free(d->nodes);
    buf_fini(&d->text);
    *d = (struct doc){0};
}

void doc_hide(struct doc *d, unsigned hidden)
{
    d->hidden = hidden;
}

/* ---- adding ---- */

/* Adds a node. RAW (may be NULL) is copied. Returns NULL if out of memory. */
static struct doc_node *doc_add(struct doc *d, enum doc_kind kind, enum doc_tone tone,
                                const char *raw, size_t len)
{
    if (!ARRAY_ROOM(d->nodes, d->count, d->cap))
        d->text.failed = true;
    struct doc_node node = {
        .kind = kind, .tone = tone, .hidden = d->hidden, .at = d->text.len, .len = len};
    buf_add(&d->text, raw ? raw : "", len);
    buf_add_byte(&d->text, '\0');
    if (d->text.failed)
        return NULL;
    d->nodes[d->count] = node;
    return &d->nodes[d->count++];
}

static struct doc_node *doc_add0(struct doc *d, enum doc_kind kind, enum doc_tone tone,
                                 const char *raw)
{
    return doc_add(d, kind, tone, raw, raw ? strlen(raw) : 0);
}

static void doc_add_style(struct doc *d, enum doc_kind kind, enum doc_tone tone, unsigned style,
                          const char *raw)
{
    struct doc_node *node = doc_add0(d, kind, tone, raw);
    if (node)
        node->style = style;
}

/* Adds a node whose data is a copy of COUNT elements of SIZE bytes. */
static struct doc_node *doc_add_data(struct doc *d, enum doc_kind kind, const char *raw,
                                     const void *data, size_t count, size_t size)
{
    void *copy = reallocarray(NULL, count + 1, size);
    struct doc_node *node = copy ? doc_add0(d, kind, TONE_PLAIN, raw) : NULL;
    d->text.failed = d->text.failed || !node;
    if (!node) {
        free(copy);
        return NULL;
    }
    if (count)
        memcpy(copy, data, count * size);
    node->data = copy;
    node->count = count;
    return node;
}

void doc_text(struct doc *d, enum doc_tone tone, const char *raw)
{
    if (raw && *raw)
        doc_add0(d, NODE_TEXT, tone, raw);
}

__attribute__((format(printf, 3, 0))) static void doc_vtextf(struct doc *d, enum doc_tone tone,
                                                             const char *fmt, va_list ap)
{
    struct buf text = {0};
    buf_vprintf(&text, fmt, ap);
    d->text.failed = d->text.failed || text.failed;
    doc_text(d, tone, buf_str(&text));
    buf_fini(&text);
}

void doc_textf(struct doc *d, enum doc_tone tone, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    doc_vtextf(d, tone, fmt, ap);
    va_end(ap);
}

void doc_name(struct doc *d, enum doc_tone tone, const char *raw, size_t len, size_t columns)
{
    struct doc_node *node = raw && len ? doc_add(d, NODE_TEXT, tone, raw, len) : NULL;
    if (node)
        node->columns = columns;
}

void doc_code(struct doc *d, const char *raw)
{
    if (raw && *raw)
        doc_add_style(d, NODE_TEXT, TONE_PLAIN, TEXT_IS_CODE, raw);
}

void doc_swatch(struct doc *d, const char *colour)
{
    doc_add0(d, NODE_SWATCH, TONE_PLAIN, colour);
}

void doc_title(struct doc *d, const char *raw)
{
    doc_add0(d, NODE_TITLE, TONE_STRONG, raw);
}

void doc_section(struct doc *d, const char *id, enum doc_tone tone, const char *title)
{
    struct doc_node *node = doc_add0(d, NODE_SECTION, tone, title);
    if (node)
        node->name = id;
}

void doc_heading(struct doc *d, const char *title)
{
    doc_add0(d, NODE_HEADING, TONE_STRONG, title);
}

void doc_space(struct doc *d)
{
    doc_add0(d, NODE_SPACE, TONE_PLAIN, NULL);
}

void doc_para(struct doc *d, enum doc_tone tone)
{
    doc_add0(d, NODE_PARA, tone, NULL);
}

void doc_headline(struct doc *d, const char *label)
{
    struct doc_node *node = doc_add0(d, NODE_PARA, TONE_PLAIN, NULL);
    if (!node)
        return;
    node->style = PARA_IS_HEADLINE;
    node->name = label;
}

void doc_fact(struct doc *d, const char *label)
{
    doc_add0(d, NODE_FACT, TONE_DIM, label);
}

void doc_figure(struct doc *d, const char *label)
{
    doc_add_style(d, NODE_FACT, TONE_DIM, FACT_IS_FIGURE, label);
}

void doc_item(struct doc *d)
{
    doc_add0(d, NODE_ITEM, TONE_PLAIN, NULL);
}

void doc_itemf(struct doc *d, enum doc_tone tone, const char *fmt, ...)
{
    va_list ap;
    doc_item(d);
    va_start(ap, fmt);
    doc_vtextf(d, tone, fmt, ap);
    va_end(ap);
}

void doc_point(struct doc *d, enum doc_point kind)
{
    doc_add_style(d, NODE_POINT, TONE_PLAIN, kind, NULL);
}

void doc_code_line(struct doc *d, const char *raw)
{
    doc_add0(d, NODE_CODE, TONE_PLAIN, raw);
}

void doc_table(struct doc *d, const char *label, const char *name, const struct doc_column *columns,
               size_t count)
{
    assert(count && count <= DOC_COLUMNS_MAX);
    struct doc_node *node = doc_add_data(d, NODE_TABLE, label, columns, count, sizeof *columns);
    if (node)
        node->name = name;
}

void doc_row(struct doc *d)
{
    doc_add0(d, NODE_ROW, TONE_PLAIN, NULL);
}

void doc_cell(struct doc *d, enum doc_tone tone, const char *raw)
{
    doc_add0(d, NODE_CELL, tone, NULL);
    doc_text(d, TONE_PLAIN, raw);
}

void doc_cellf(struct doc *d, enum doc_tone tone, const char *fmt, ...)
{
    va_list ap;
    doc_add0(d, NODE_CELL, tone, NULL);
    va_start(ap, fmt);
    doc_vtextf(d, TONE_PLAIN, fmt, ap);
    va_end(ap);
}

void doc_below(struct doc *d, enum doc_tone tone, const char *raw)
{
    doc_add0(d, NODE_BELOW, tone, NULL);
    doc_text(d, TONE_PLAIN, raw);
}

void doc_fold(struct doc *d, enum doc_fold kind)
{
    doc_add_style(d, NODE_FOLD, TONE_PLAIN, kind, NULL);
}

void doc_fold_end(struct doc *d)
{
    doc_add0(d, NODE_FOLD_END, TONE_PLAIN, NULL);
}

void doc_plot(struct doc *d, const struct doc_plot *plot)
{
    size_t points = plot->count * sizeof *plot->points;
    size_t events = plot->event_count * sizeof *plot->events;
    struct doc_plot *copy;
    /* one allocation contains the plot, its points and its events */
    struct doc_node *node =
        doc_add_data(d, NODE_PLOT, plot->title, NULL, 0, sizeof *copy + points + events);
    if (!node)
        return;
    copy = node->data;
    *copy = *plot;
    copy->points = points ? memcpy(copy + 1, plot->points, points) : NULL;
    copy->events = events ? memcpy((char *)(copy + 1) + points, plot->events, events) : NULL;
}

void doc_bar(struct doc *d, const char *label, const struct doc_part *parts, size_t count)
{
    doc_add_data(d, NODE_BAR, label, parts, count, sizeof *parts);
}

void doc_canvas(struct doc *d, const char *what)
{
    doc_add0(d, NODE_CANVAS, TONE_PLAIN, what);
}

/* ---- functions for the back ends ---- */

const char *doc_string(const struct doc *d, size_t i)
{
    return d->text.data + d->nodes[i].at;
}

struct doc doc_visible(const struct doc *d, unsigned back_end, bool unfolds)
{
    struct doc v = {.nodes = calloc(d->count + 1, sizeof *v.nodes), .text = d->text};
    size_t folded = 0; /* nesting depth of closed folds */
    bool in_summary = false;
    v.text.failed = d->text.failed || !v.nodes;
    for (size_t i = 0; v.nodes && i < d->count; i++) {
        struct doc_node node = d->nodes[i];
        if (node.hidden & back_end)
            continue;
        in_summary = in_summary && node.kind == NODE_TEXT;
        bool is_shown = folded == 0 || (folded == 1 && in_summary);
        if (!unfolds && node.kind == NODE_FOLD) {
            is_shown = folded == 0;
            in_summary = is_shown;
            folded += folded || node.style == FOLD_GROUP;
            node.kind = NODE_PARA;
            node.tone = node.style == FOLD_GROUP ? TONE_DIM : TONE_PLAIN;
            node.style = 0;
        } else if (!unfolds && node.kind == NODE_FOLD_END) {
            folded -= folded > 0;
            is_shown = false;
        }
        if (is_shown)
            v.nodes[v.count++] = node;
    }
    return v;
}

size_t doc_spans(const struct doc *d, size_t i, struct buf *out)
{
    for (; doc_is_span(d, i); i++) {
        const struct doc_node *n = &d->nodes[i];
        char cut[256];
        if (n->kind == NODE_TEXT && n->columns)
            buf_add_str(out, text_fit(cut, sizeof cut, n->columns, doc_string(d, i), n->len));
        else if (n->kind == NODE_TEXT)
            text_escape(out, doc_string(d, i), n->len);
    }
    return i;
}

size_t doc_table_end(const struct doc *d, size_t i)
{
    for (i++; i < d->count; i++) {
        enum doc_kind kind = d->nodes[i].kind;
        if (kind != NODE_ROW && kind != NODE_CELL && kind != NODE_BELOW && kind != NODE_TEXT &&
            kind != NODE_SWATCH)
            break;
    }
    return i;
}

unsigned doc_table_shown(const struct doc *d, size_t i)
{
    size_t column = 0, end = doc_table_end(d, i);
    unsigned shown = 0;
    for (i++; i + 1 < end; i++) {
        if (d->nodes[i].kind == NODE_ROW)
            column = 0;
        if (d->nodes[i].kind != NODE_CELL || column++ >= DOC_COLUMNS_MAX)
            continue;
        size_t text = i + 1 + (d->nodes[i + 1].kind == NODE_SWATCH);
        if (text < end && d->nodes[text].kind == NODE_TEXT && strcmp(doc_string(d, text), "–") != 0)
            shown |= 1u << (column - 1);
    }
    return shown;
}
