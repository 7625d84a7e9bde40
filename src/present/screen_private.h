/* The screen's inside, shared by screen.c (life and keys) and draw.c (what is drawn). */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "present/frame.h"
#include "present/table.h"

struct screen {
    void *terminal; /* ncurses' SCREEN */
    bool is_ascii;
    bool has_colour, has_many_colours;
    bool is_paused, shows_command, shows_help;
    bool is_notice_read; /* a key has been pressed since it came */

    const struct frame *frame; /* NULL before the first */
    struct table table;
    size_t cursor; /* line of the table */
    size_t top;    /* first line shown */
    size_t page;   /* lines that there is room for */
};

enum paint {
    PAINT_PLAIN,
    PAINT_DIM,
    PAINT_STRONG,
    PAINT_GOOD,
    PAINT_WARN,
    PAINT_ALARM,
    PAINT_HEAD,   /* the table's title line */
    PAINT_SORTED, /* the column that it is sorted by */
    PAINT_COUNT
};

/* Where the pen stands on line Y; nothing is put at RIGHT or beyond. */
struct pen {
    const struct screen *screen;
    int y, x, right;
    bool is_selected; /* reverse video over all */
};

struct pen pen_at(const struct screen *s, int y);
/* Our own words, or text already escaped: cut at the right edge. */
void pen_put(struct pen *p, enum paint paint, const char *text);
__attribute__((format(printf, 3, 4))) void pen_printf(struct pen *p, enum paint paint,
                                                      const char *fmt, ...);
/* Raw bytes of another program, escaped, in at most WIDTH columns. */
void pen_raw(struct pen *p, enum paint paint, size_t width, const char *s, size_t len);
void pen_move(struct pen *p, int x);
/* Three spaces and the text where all of it fits, else nothing at all. */
void pen_item(struct pen *p, enum paint paint, const char *text);
/* "████░░░░" of WIDTH columns. */
void pen_bar(struct pen *p, int width, double part);
void paint_begin(struct screen *s);

/* Everything, from the frame and the table as they are. */
void draw_all(struct screen *s);
/* Title, machine, job and GPUs, as far as HEIGHT allows: the line below them. */
int draw_head(struct screen *s, int height);
/* Yellow under an hour of head-room at RATE, red under ten minutes. */
enum paint paint_rate(const struct frame *f, bool known, double rate);
