/* The state of the screen, shared by screen.c (setup and keys) and draw.c (drawing). */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "present/frame.h"
#include "present/table.h"

struct screen {
    void *terminal; /* ncurses' SCREEN */
    bool is_ascii;
    bool has_colour, has_many_colours;
    bool is_paused, shows_command, shows_help;
    bool is_notice_read; /* true if a key was pressed since the notice appeared */

    const struct frame *frame; /* the frame that is shown, or NULL before the first */
    struct table table;
    size_t cursor; /* index of the selected line of the table */
    size_t top;    /* index of the first visible line */
    size_t page;   /* number of lines that fit on the screen */
};

enum paint {
    PAINT_PLAIN,
    PAINT_DIM,
    PAINT_STRONG,
    PAINT_GOOD,
    PAINT_WARN,
    PAINT_ALARM,
    PAINT_HEAD,   /* colour of the table head */
    PAINT_SORTED, /* colour of the head of the column by which the table is sorted */
    PAINT_COUNT
};

/* A writing position on line Y. Nothing is written at column RIGHT or beyond. */
struct pen {
    const struct screen *screen;
    int y, x, right;
    bool is_selected; /* true if the whole line is in reverse video */
};

struct pen pen_at(const struct screen *s, int y);
/* Writes ebb's own text or escaped text, truncated at the right edge. */
void pen_put(struct pen *p, enum paint paint, const char *text);
__attribute__((format(printf, 3, 4))) void pen_printf(struct pen *p, enum paint paint,
                                                      const char *fmt, ...);
/* Writes raw bytes of another program, escaped, in at most WIDTH columns. */
void pen_raw(struct pen *p, enum paint paint, size_t width, const char *s, size_t len);
void pen_move(struct pen *p, int x);
/* Writes three spaces and the text if all of it fits, otherwise nothing. */
void pen_item(struct pen *p, enum paint paint, const char *text);
/* Writes a bar of WIDTH columns, such as "████░░░░". */
void pen_bar(struct pen *p, int width, double part);
void paint_begin(struct screen *s);

/* Draws the whole screen from the current frame and table. */
void draw_all(struct screen *s);
