/* The nodes of a document, for document*.c alone. */
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
    unsigned style;  /* one of the bits above, an enum doc_point or an enum doc_fold */
    unsigned hidden; /* back ends that leave it out */
    size_t at, len;  /* its text: title, label, span; in doc.text, with a NUL behind it */
    size_t columns;  /* of a name: where it is cut; 0: nowhere */
    void *data;      /* of a table: columns; of a plot: struct doc_plot; of a bar: parts */
    size_t count;
    const char *name; /* of a table, a section, a canvas: a constant of ours */
};

/* Whether node I is part of a text. */
static inline bool doc_is_span(const struct doc *d, size_t i)
{
    return i < d->count && (d->nodes[i].kind == NODE_TEXT || d->nodes[i].kind == NODE_SWATCH);
}
/* The text of node I, NUL-ended. */
const char *doc_string(const struct doc *d, size_t i);
/* D without what BACK_END leaves out. UNFOLDS: whether a reader can unfold; else folds become
 * paragraphs, groups without their blocks. Shares D's text; free(nodes). */
struct doc doc_visible(const struct doc *d, unsigned back_end, bool unfolds);
/* Appends the text of the spans from I on as terminals may show it; where they end. */
size_t doc_spans(const struct doc *d, size_t i, struct buf *out);
/* The node behind the table at I. */
size_t doc_table_end(const struct doc *d, size_t i);
/* The columns of the table at I that have a cell which says something: bit K for column K. */
enum { DOC_COLUMNS_MAX = 16 };
unsigned doc_table_shown(const struct doc *d, size_t i);
