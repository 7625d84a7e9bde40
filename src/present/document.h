/* A document of facts, sentences, lists, tables, code and plots that knows no output format. Views
 * build one, a back end writes it: for a terminal, as HTML, as Markdown. All text is given raw and
 * may be another program's; the back ends make it harmless, so nobody else escapes or cuts it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "run/series.h"

enum doc_tone { TONE_PLAIN, TONE_DIM, TONE_STRONG, TONE_GOOD, TONE_BAD, TONE_OPEN };

/* Zeroed is an empty document. Errors stick: `text.failed` is set, and so is that of the buffer
 * that a back end writes to. */
struct doc {
    struct doc_node *nodes;
    size_t count, cap;
    struct buf text;
    unsigned hidden; /* back ends that leave out what is added from now on */
};
void doc_fini(struct doc *d);

/* What is added from now on is left out by the back ends in HIDDEN (0: by none). */
enum { DOC_TERMINAL = 1, DOC_HTML = 2, DOC_MARKDOWN = 4 };
void doc_hide(struct doc *d, unsigned hidden);

/* ---- text: goes to the end of the block, item or cell that was begun last ---- */

/* NULL and "" add nothing. */
void doc_text(struct doc *d, enum doc_tone tone, const char *raw);
__attribute__((format(printf, 3, 4))) void doc_textf(struct doc *d, enum doc_tone tone,
                                                     const char *fmt, ...);
/* LEN bytes, cut in a terminal after COLUMNS columns. */
void doc_name(struct doc *d, enum doc_tone tone, const char *raw, size_t len, size_t columns);
void doc_code(struct doc *d, const char *raw); /* a path, a function, a command */
/* A square in one of the colours of doc_bar; HTML only. */
void doc_swatch(struct doc *d, const char *colour);

/* ---- blocks ---- */

void doc_title(struct doc *d, const char *raw);
/* ID is one word of ours, TITLE may be NULL. A TONE makes the section a coloured card. */
void doc_section(struct doc *d, const char *id, enum doc_tone tone, const char *title);
void doc_heading(struct doc *d, const char *title); /* within a section */
void doc_space(struct doc *d);                      /* an empty line in a terminal */

/* A sentence or more, broken over as many lines as it takes. TONE holds for plain text in it. */
void doc_para(struct doc *d, enum doc_tone tone);
void doc_headline(struct doc *d, enum doc_tone tone); /* the one that matters most */
/* "label      item, item": items are not broken where a line has room for them. A fact without
 * text leaves nothing; "" as label continues the fact before. A figure is a fact that stands out
 * in HTML. */
void doc_fact(struct doc *d, const char *label);
void doc_toned_fact(struct doc *d, enum doc_tone tone, const char *label);
void doc_figure(struct doc *d, const char *label);
void doc_item(struct doc *d);
__attribute__((format(printf, 3, 4))) void doc_itemf(struct doc *d, enum doc_tone tone,
                                                     const char *fmt, ...);

/* Consecutive points are one list; in a terminal they stand below the block before. */
enum doc_point {
    POINT_PLAIN,   /* · */
    POINT_FOR,     /* + */
    POINT_AGAINST, /* − */
    POINT_ABSENT,  /* ? */
    POINT_DECIDE,  /* would decide it: */
    POINT_TROUBLE, /* ! something could not be read */
};
void doc_point(struct doc *d, enum doc_point kind);
/* Consecutive lines are one block, never broken. */
void doc_code_line(struct doc *d, const char *raw);

/* A terminal leaves out the columns with the highest PRIORITY until the rest fits, and every back
 * end those in which no cell says anything (empty or "–"). Columns are as wide as what is in them;
 * the last gets the rest of the line. */
enum doc_cut { CUT_END, CUT_START, CUT_WRAP };
struct doc_column {
    const char *title;
    bool is_number;    /* to the right */
    unsigned priority; /* 0: stays in any case */
    enum doc_cut cut;  /* of text that a terminal has no room for */
    size_t least;      /* of the last column: the room that others leave it */
    size_t most;       /* 0: as wide as what is in it */
};
/* LABEL (or NULL) stands before the head of the table, as that of a fact; NAME is what readers of a
 * page hear, "table of processes". */
void doc_table(struct doc *d, const char *label, const char *name, const struct doc_column *columns,
               size_t count);
void doc_row(struct doc *d);
void doc_cell(struct doc *d, enum doc_tone tone, const char *raw);
__attribute__((format(printf, 3, 4))) void doc_cellf(struct doc *d, enum doc_tone tone,
                                                     const char *fmt, ...);
/* A line below the last cell of the row, as of a stack; HTML folds them. */
void doc_below(struct doc *d, enum doc_tone tone, const char *raw);

/* A summary, whose text follows, and the blocks up to doc_fold_end. Where nothing can be unfolded
 * all is shown, but of a group its summary alone. */
enum doc_fold { FOLD_OPEN, FOLD_CLOSED, FOLD_GROUP /* closed; of several folds, or a table */ };
void doc_fold(struct doc *d, enum doc_fold kind);
void doc_fold_end(struct doc *d);

/* ---- pictures ---- */

struct doc_event {
    uint64_t t_ns;
    char letter;
};
/* A curve over time; drawn in a terminal. Its text and arrays are copied. */
struct doc_plot {
    const char *title;
    uint64_t span_ns;
    uint64_t most; /* the axis reaches at least this; 0: as far as the curve */
    const struct series_point *points;
    size_t count;
    const struct doc_event *events;
    size_t event_count;
};
void doc_plot(struct doc *d, const struct doc_plot *plot);
/* A bar of COUNT parts, each a share of one; HTML only. COLOUR: l0 to l9, s0 to s5. */
struct doc_part {
    double share;
    char colour[4];
};
void doc_bar(struct doc *d, const char *label, const struct doc_part *parts, size_t count);
/* Where the page's script draws: "plots", "steps" (plots that also go by step) or "flame". */
void doc_canvas(struct doc *d, const char *what);

/* ---- back ends ---- */

enum { DOC_LABEL_COLUMNS = 11 };
void doc_terminal(struct buf *out, const struct doc *d, bool colour, size_t width);
void doc_html(struct buf *out, const struct doc *d);
/* CWD (or NULL): the folder whose name is left out of paths. */
void doc_markdown(struct buf *out, const struct doc *d, const char *cwd);
