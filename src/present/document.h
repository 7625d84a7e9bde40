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
    unsigned hidden; /* back ends that omit what is added from now on */
};
void doc_fini(struct doc *d);

/* The back ends in HIDDEN omit everything that is added from now on (0: none of them). */
enum { DOC_TERMINAL = 1, DOC_HTML = 2, DOC_MARKDOWN = 4 };
void doc_hide(struct doc *d, unsigned hidden);

/* ---- text, appended to the last block, item or cell ---- */

/* NULL and "" add nothing. */
void doc_text(struct doc *d, enum doc_tone tone, const char *raw);
__attribute__((format(printf, 3, 4))) void doc_textf(struct doc *d, enum doc_tone tone,
                                                     const char *fmt, ...);
/* Adds LEN bytes. In a terminal they are truncated after COLUMNS columns. */
void doc_name(struct doc *d, enum doc_tone tone, const char *raw, size_t len, size_t columns);
void doc_code(struct doc *d, const char *raw); /* a path, a function or a command */
/* Adds a square in one of the colours of doc_bar; HTML only. */
void doc_swatch(struct doc *d, const char *colour);

/* ---- blocks ---- */

void doc_title(struct doc *d, const char *raw);
/* ID is a word without special characters. TITLE may be NULL. A TONE makes the section a coloured
 * card. */
void doc_section(struct doc *d, const char *id, enum doc_tone tone, const char *title);
void doc_heading(struct doc *d, const char *title); /* within a section */
void doc_space(struct doc *d);                      /* an empty line in a terminal */

/* A paragraph, wrapped as necessary. TONE applies to the plain text in it. */
void doc_para(struct doc *d, enum doc_tone tone);
/* The most important paragraph. In a terminal LABEL is written before it: "ebb", or "" to continue
 * below another headline; NULL: no label. */
void doc_headline(struct doc *d, const char *label);
/* A fact is written as "label      item, item". An item is not wrapped if it fits on a line. A
 * fact without text is omitted; the label "" continues the previous fact. A figure is a fact that
 * HTML emphasises. */
void doc_fact(struct doc *d, const char *label);
void doc_figure(struct doc *d, const char *label);
void doc_item(struct doc *d);
__attribute__((format(printf, 3, 4))) void doc_itemf(struct doc *d, enum doc_tone tone,
                                                     const char *fmt, ...);

/* Consecutive points form one list. In a terminal they are indented below the previous block. */
enum doc_point {
    POINT_PLAIN,   /* · */
    POINT_FOR,     /* + */
    POINT_AGAINST, /* − */
    POINT_ABSENT,  /* ? */
    POINT_DECIDE,  /* would decide it: */
    POINT_TROUBLE, /* ! something could not be read */
    POINT_PLACE,   /* --> a line of the program, below a headline */
    POINT_SOURCE,  /* | the text of that line, never wrapped */
    POINT_NOTE,    /* | a note on that line */
    POINT_HELP,    /* = help: the advice */
};
void doc_point(struct doc *d, enum doc_point kind);
/* Consecutive lines form one block, which is never wrapped. */
void doc_code_line(struct doc *d, const char *raw);

/* A terminal hides the columns with the highest PRIORITY until the rest fits, and every back end
 * hides columns in which all cells are empty or "–". Columns are as wide as their content; the
 * last one gets the rest of the line. */
enum doc_cut { CUT_END, CUT_START, CUT_WRAP };
struct doc_column {
    const char *title;
    bool is_number;    /* aligned to the right */
    unsigned priority; /* 0: never hidden */
    enum doc_cut cut;  /* how a terminal shortens text that does not fit */
    size_t least;      /* for the last column: the width that the other columns must leave */
    size_t most;       /* maximum width; 0: as wide as the content */
};
/* LABEL (or NULL) is written before the head of the table, as that of a fact. NAME is the
 * accessible name in a page, "table of processes". */
void doc_table(struct doc *d, const char *label, const char *name, const struct doc_column *columns,
               size_t count);
void doc_row(struct doc *d);
void doc_cell(struct doc *d, enum doc_tone tone, const char *raw);
__attribute__((format(printf, 3, 4))) void doc_cellf(struct doc *d, enum doc_tone tone,
                                                     const char *fmt, ...);
/* Adds a line below the last cell of the row, for a stack. HTML folds these lines. */
void doc_below(struct doc *d, enum doc_tone tone, const char *raw);

/* Begins a fold: a summary, whose text follows, and the blocks up to doc_fold_end. Back ends that
 * cannot fold show everything, except that a group shows only its summary. */
enum doc_fold {
    FOLD_OPEN,
    FOLD_CLOSED,
    FOLD_GROUP /* closed; contains several folds or a table */
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
    uint64_t most; /* the axis extends at least to this value; 0: to the maximum of the curve */
    const struct series_point *points;
    size_t count;
    const struct doc_event *events;
    size_t event_count;
};
void doc_plot(struct doc *d, const struct doc_plot *plot);
/* A bar of COUNT parts, each with a share of 1; HTML only. COLOUR is l0 to l9 or s0 to s5. */
struct doc_part {
    double share;
    char colour[4];
};
void doc_bar(struct doc *d, const char *label, const struct doc_part *parts, size_t count);
/* A place where the page's script draws: "plots", "steps" (plots that can also be shown by step),
 * "flame" or "flame-gpu". */
void doc_canvas(struct doc *d, const char *what);

/* ---- back ends ---- */

enum { DOC_LABEL_COLUMNS = 11 };
void doc_terminal(struct buf *out, const struct doc *d, bool colour, size_t width);
void doc_html(struct buf *out, const struct doc *d);
/* CWD (or NULL) is a folder that is removed from paths. */
void doc_markdown(struct buf *out, const struct doc *d, const char *cwd);
