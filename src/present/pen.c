/* Writes text to the terminal in a few colours. The text is truncated at the right edge, and it is
 * converted to ASCII if the locale requires that. */
#include "present/screen_private.h"

#include <curses.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

#include "base/text.h"
#include "present/cells.h"

static attr_t attributes(const struct pen *p, enum paint paint)
{
    static const attr_t plain[PAINT_COUNT] = {
        [PAINT_DIM] = A_DIM,      [PAINT_STRONG] = A_BOLD,
        [PAINT_WARN] = A_BOLD,    [PAINT_ALARM] = A_BOLD | A_UNDERLINE,
        [PAINT_HEAD] = A_REVERSE, [PAINT_SORTED] = A_REVERSE | A_BOLD,
    };
    static const attr_t coloured[PAINT_COUNT] = {
        [PAINT_STRONG] = A_BOLD,
        [PAINT_ALARM] = A_BOLD,
        [PAINT_SORTED] = A_BOLD,
    };
    if (p->is_selected)
        return A_REVERSE | (paint == PAINT_DIM ? 0 : plain[paint]);
    if (!p->screen->has_colour)
        return plain[paint];
    return coloured[paint] | (attr_t)COLOR_PAIR(paint);
}

void paint_begin(struct screen *s)
{
    struct {
        short many, few, background_many, background_few;
    } colours[PAINT_COUNT] = {
        [PAINT_PLAIN] = {-1, -1, -1, -1},
        [PAINT_DIM] = {245, COLOR_CYAN, -1, -1},
        [PAINT_STRONG] = {-1, -1, -1, -1},
        [PAINT_GOOD] = {72, COLOR_GREEN, -1, -1},
        [PAINT_WARN] = {178, COLOR_YELLOW, -1, -1},
        [PAINT_ALARM] = {203, COLOR_RED, -1, -1},
        [PAINT_HEAD] = {252, COLOR_BLACK, 238, COLOR_CYAN},
        [PAINT_SORTED] = {231, COLOR_WHITE, 24, COLOR_BLUE},
    };
    if (!s->has_colour)
        return;
    start_color();
    use_default_colors();
    s->has_many_colours = COLORS >= 256;
    for (int i = 1; i < PAINT_COUNT; i++)
        init_pair((short)i, s->has_many_colours ? colours[i].many : colours[i].few,
                  s->has_many_colours ? colours[i].background_many : colours[i].background_few);
}

struct pen pen_at(const struct screen *s, int y)
{
    return (struct pen){.screen = s, .y = y, .right = COLS};
}

void pen_move(struct pen *p, int x)
{
    for (; p->is_selected && p->x < x && p->x < p->right; p->x++)
        mvaddch(p->y, p->x, ' ' | A_REVERSE);
    p->x = x;
}

/* Returns the ASCII replacement of a character that ebb itself uses. */
static char ascii_for(uint32_t c)
{
    static const struct {
        uint32_t from;
        char to;
    } pairs[] = {
        {0x2013, '-'}, {0x2026, '~'}, {0x00B7, '|'}, {0x251C, '|'}, {0x2514, '`'},
        {0x2500, '-'}, {0x2502, '|'}, {0x25BC, 'v'}, {0x25B2, '^'}, {0x2588, '#'},
        {0x2591, '.'}, {0x00B5, 'u'}, {0x2191, '^'}, {0x2193, 'v'},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].from == c)
            return pairs[i].to;
    return '?';
}

static int columns_of(uint32_t c)
{
    int w = wcwidth((wchar_t)c);
    return w >= 0 ? w : 1;
}

void pen_put(struct pen *p, enum paint paint, const char *text)
{
    char out[1024];
    size_t len = strlen(text), used = 0;
    int columns = 0;
    for (size_t i = 0; i < len;) {
        uint32_t c = 0;
        size_t n = text_utf8(text + i, len - i, &c);
        if (n == 0)
            /* ebb's own texts are valid UTF-8, except where a character was cut to fit an array */
            break;
        int w = p->screen->is_ascii ? 1 : columns_of(c);
        if (p->x + columns + w > p->right || used + n >= sizeof out)
            break;
        if (p->screen->is_ascii)
            out[used++] = c < 0x80 ? text[i] : ascii_for(c);
        else
            memcpy(out + used, text + i, n), used += n;
        columns += w;
        i += n;
    }
    if (columns == 0 || p->y < 0 || p->y >= LINES)
        return;
    attr_t attr = attributes(p, paint);
    attron(attr);
    mvaddnstr(p->y, p->x, out, (int)used);
    attroff(attr);
    p->x += columns;
}

void pen_printf(struct pen *p, enum paint paint, const char *fmt, ...)
{
    char text[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    pen_put(p, paint, text);
}

void pen_raw(struct pen *p, enum paint paint, size_t width, const char *s, size_t len)
{
    char text[1024];
    size_t room = p->right > p->x ? (size_t)(p->right - p->x) : 0;
    if (room > 0 && width > 0)
        pen_put(p, paint, text_fit(text, sizeof text, width < room ? width : room, s, len));
}

void pen_item(struct pen *p, enum paint paint, const char *text)
{
    int columns = (int)cell_columns(text);
    if (columns == 0 || p->x + 3 + columns > p->right)
        return;
    p->x += 3;
    pen_put(p, paint, text);
}

void pen_bar(struct pen *p, int width, double part)
{
    enum paint paint = part > 0.95 ? PAINT_ALARM : part > 0.85 ? PAINT_WARN : PAINT_GOOD;
    int filled = (int)(part * width + 0.5);
    for (int i = 0; i < width; i++)
        pen_put(p, i < filled ? paint : PAINT_DIM, i < filled ? "█" : "░");
}
