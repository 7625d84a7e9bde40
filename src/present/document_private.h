/* The nodes of a document; private to document*.c. */
#pragma once

#include "present/document.h"

enum doc_kind {
    NODE_TEXT,
    NODE_SWATCH,
    NODE_TITLE,
    NODE_SECTION,
    NODE_HEADING,
    NODE_SPACE,
    NODE_PARA,
    NODE_FACT,
    NODE_ITEM,
    NODE_POINT,
    NODE_CODE,
    NODE_TABLE,
    NODE_ROW,
    NODE_CELL,
    NODE_BELOW,
    NODE_FOLD,
    NODE_FOLD_END,
    NODE_PLOT,
    NODE_BAR,
    NODE_CANVAS,
};
enum { TEXT_IS_CODE = 1, PARA_IS_HEADLINE = 1, FACT_IS_FIGURE = 1 };

struct doc_node {
    enum doc_kind kind;
    enum doc_tone tone;
    unsigned style;  /* one of the flags above, an enum doc_point or an enum doc_fold */
    unsigned hidden; /* bits of the back ends that omit this node */
    size_t at, len; /* position in doc.text of the node's title, label or span, which ends in NUL */
    size_t columns; /* for a name, the width at which it is truncated, or 0 */
    void *data;     /* columns of a table, struct doc_plot of a plot, or parts of a bar */
    size_t count;
    const char *name; /* name of a table or a section, or label of a headline; a string constant */
};

/* Returns true if node I is part of a text. */
static inline bool doc_is_span(const struct doc *d, size_t i)
{
    return i < d->count && (d->nodes[i].kind == NODE_TEXT || d->nodes[i].kind == NODE_SWATCH);
}
/* Returns the text of node I, which ends in NUL. */
const char *doc_string(const struct doc *d, size_t i);
/* Returns a view of D without the nodes that BACK_END omits. If UNFOLDS is false, the reader cannot
 * unfold content: each fold becomes a paragraph, and only the summary of each FOLD_GROUP remains.
 * The result shares D's text; the caller frees the nodes of the result. */
struct doc doc_visible(const struct doc *d, unsigned back_end, bool unfolds);
/* Appends the text of the spans from I on, escaped for a terminal. Returns the index after them. */
size_t doc_spans(const struct doc *d, size_t i, struct buf *out);
/* Returns the index of the node after the table at I. */
size_t doc_table_end(const struct doc *d, size_t i);
/* Returns a bit mask of the columns of the table at I in which some cell has content. */
enum { DOC_COLUMNS_MAX = 16 };
unsigned doc_table_shown(const struct doc *d, size_t i);
