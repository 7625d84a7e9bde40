/* A document of facts, sentences, lists, tables, code and plots, independent of the output format.
 * Views build it, and a back end writes it for a terminal, as HTML or as Markdown. All text is
 * added raw and may come from other programs; the back ends escape and truncate it, so no other
 * code has to. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "run/series.h"

enum doc_tone { TONE_PLAIN, TONE_DIM, TONE_STRONG, TONE_GOOD, TONE_BAD, TONE_OPEN };

/* A zeroed struct is an empty document. After a failure `text.failed` is set, and so is `failed`
 * of the buffer to which a back end writes. */
struct doc {
    struct doc_node *nodes;
    size_t count, cap;
    struct buf text;
    unsigned hidden; /* bits of the back ends that omit the nodes added from now on */
};
void doc_fini(struct doc *d);

/* Until the next call of this function, the back ends in HIDDEN omit everything that is added. With
 * 0, no back end omits anything. */
enum { DOC_TERMINAL = 1, DOC_HTML = 2, DOC_MARKDOWN = 4 };
void doc_hide(struct doc *d, unsigned hidden);

/* ---- text, which is appended to the last block, item or cell ---- */

/* Adds plain text; NULL and "" add nothing. */
void doc_text(struct doc *d, enum doc_tone tone, const char *raw);
__attribute__((format(printf, 3, 4))) void doc_textf(struct doc *d, enum doc_tone tone,
                                                     const char *fmt, ...);
/* Adds LEN bytes, which a terminal truncates after COLUMNS columns. */
void doc_name(struct doc *d, enum doc_tone tone, const char *raw, size_t len, size_t columns);
void doc_code(struct doc *d, const char *raw); /* adds a path, a function or a command */
/* Adds a square in one of the colours of doc_bar; HTML only. */
void doc_swatch(struct doc *d, const char *colour);

/* ---- blocks ---- */

void doc_title(struct doc *d, const char *raw);
/* Begins a section. ID is a word without special characters. TITLE may be NULL. A TONE makes the
 * section a coloured card. */
void doc_section(struct doc *d, const char *id, enum doc_tone tone, const char *title);
void doc_heading(struct doc *d, const char *title);
void doc_space(struct doc *d); /* adds an empty line in a terminal */

/* Begins a paragraph, which is wrapped as necessary. TONE applies to the plain text in it. */
void doc_para(struct doc *d, enum doc_tone tone);
/* Begins the most important paragraph. In a terminal, LABEL precedes the text: "ebb", or "" to
 * leave the space of a label empty below another headline. NULL leaves no space. */
void doc_headline(struct doc *d, const char *label);
/* Begins a fact, which is written as "label      item, item". An item is not wrapped if it fits on
 * a line. A fact without text is omitted. The label "" continues the previous fact. A figure is a
 * fact that HTML emphasises. */
void doc_fact(struct doc *d, const char *label);
void doc_figure(struct doc *d, const char *label);
void doc_item(struct doc *d);
__attribute__((format(printf, 3, 4))) void doc_itemf(struct doc *d, enum doc_tone tone,
                                                     const char *fmt, ...);

/* Kinds of list items, called points. Consecutive points form one list. In a terminal they are
 * indented below the previous block. */
enum doc_point {
    POINT_PLAIN,   /* · */
    POINT_FOR,     /* + */
    POINT_AGAINST, /* − */
    POINT_ABSENT,  /* ? */
    POINT_DECIDE,  /* a point that begins with "to decide:" */
    /* a point that begins with "!": an error, such as a file that could not be read */
    POINT_TROUBLE,
    POINT_PLACE,  /* a line of the program below a headline, marked with "-->" */
    POINT_SOURCE, /* a point that begins with "|": the text of a program line, never wrapped */
    POINT_NOTE,   /* a point that begins with "|": a note on a program line */
    POINT_HELP,   /* a point that begins with "= help:": the advice */
};
void doc_point(struct doc *d, enum doc_point kind);
/* Adds a line of code. Consecutive lines form one block, which is never wrapped. */
void doc_code_line(struct doc *d, const char *raw);

/* How a terminal shortens the text of a cell: at its end, at its start, or not at all, because the
 * text is wrapped. If a table is too wide, a terminal hides the columns with the highest PRIORITY
 * until the other columns fit. Every back end hides columns in which all cells are empty or "–".
 * Columns are as wide as their content; the last column gets the rest of the line. */
enum doc_cut { CUT_END, CUT_START, CUT_WRAP };
struct doc_column {
    const char *title;
    bool is_number;    /* cells are aligned to the right */
    unsigned priority; /* 0: never hidden */
    enum doc_cut cut;  /* how a terminal shortens text that does not fit */
    size_t least; /* only for the last column: the width that the other columns must leave for it */
    size_t most;  /* maximum width in a terminal, or 0 for the width of the content */
};
/* Begins a table. LABEL (or NULL) is written before the column headers, like the label of a fact.
 * NAME is the accessible name in a page, such as "table of processes". */
void doc_table(struct doc *d, const char *label, const char *name, const struct doc_column *columns,
               size_t count);
void doc_row(struct doc *d);
void doc_cell(struct doc *d, enum doc_tone tone, const char *raw);
__attribute__((format(printf, 3, 4))) void doc_cellf(struct doc *d, enum doc_tone tone,
                                                     const char *fmt, ...);
/* Adds a line below the last cell of the row, such as a frame of a stack. HTML folds these
 * lines. */
void doc_below(struct doc *d, enum doc_tone tone, const char *raw);

/* Begins a fold, which consists of a summary (the text that follows) and of the blocks up to
 * doc_fold_end. Back ends that cannot fold show the whole fold, but only the summary of a
 * FOLD_GROUP. */
enum doc_fold {
    FOLD_OPEN,
    FOLD_CLOSED,
    FOLD_GROUP /* a closed fold that contains several folds or a table */
};
void doc_fold(struct doc *d, enum doc_fold kind);
void doc_fold_end(struct doc *d);

/* ---- pictures ---- */

struct doc_event {
    uint64_t t_ns;
    char letter;
};
/* A curve over time, drawn in a terminal. Its text and arrays are copied. */
struct doc_plot {
    const char *title;
    uint64_t span_ns;
    uint64_t most; /* the axis extends at least to this value; 0: only to the curve's maximum */
    const struct series_point *points;
    size_t count;
    const struct doc_event *events;
    size_t event_count;
};
void doc_plot(struct doc *d, const struct doc_plot *plot);
/* A part of a bar. The shares of all parts add up to 1. HTML only. COLOUR is l0 to l9 or s0 to
 * s5. */
struct doc_part {
    double share;
    char colour[4];
};
void doc_bar(struct doc *d, const char *label, const struct doc_part *parts, size_t count);
/* Adds a place where the page's script draws: "plots", "steps" (plots that can also be shown by
 * step), "flame" or "flame-gpu". */
void doc_canvas(struct doc *d, const char *what);

/* ---- back ends ---- */

enum { DOC_LABEL_COLUMNS = 11 };
void doc_terminal(struct buf *out, const struct doc *d, bool colour, size_t width);
void doc_html(struct buf *out, const struct doc *d);
/* Renders as Markdown. CWD (or NULL) is a folder that is removed from paths. */
void doc_markdown(struct buf *out, const struct doc *d, const char *cwd);
