/* Draws the table of processes, the lines below it, and the help. Only visible rows are
 * formatted, however many processes there are. */
#include "present/screen_private.h"

#include <curses.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "present/cells.h"
#include "present/spark.h"

enum { SPARK_COLUMNS = 16, NAME_COLUMNS = 16, PID_COLUMNS = 8 };

enum column_id {
    COL_PID,
    COL_ROLE,
    COL_RSS,
    COL_ANON,
    COL_UNIQUE,
    COL_SWAP,
    COL_GPU,
    COL_PEAK,
    COL_RATE,
    COL_SPARK,
    COL_COUNT
};

/* ---- columns ---- */

static void scan_rows(const struct frame *f, bool *ret_swap, bool *ret_gpu, size_t *ret_role)
{
    *ret_swap = *ret_gpu = false;
    *ret_role = 4;
    for (size_t i = 0; i < f->count; i++) {
        const struct frame_row *r = &f->rows[i];
        *ret_swap |= frame_figure(&r->sample, SAMPLE_SWAP).bytes > 0;
        *ret_gpu |= frame_figure(&r->sample, SAMPLE_GPU).bytes > 0;
        size_t len = strlen(process_role_name(r->info.role));
        *ret_role = len > *ret_role ? len : *ret_role;
    }
}

static bool has_short_roles(void)
{
    return COLS < 110;
}

static void choose_columns(const struct frame *f, struct cell_column ret[COL_COUNT])
{
    bool has_swap, has_gpu;
    size_t role;
    scan_rows(f, &has_swap, &has_gpu, &role);
    if (has_short_roles() && role > 8)
        role = 8;
    const struct cell_column all[COL_COUNT] = {
        [COL_PID] = {"PID", PID_COLUMNS, 1, false},
        [COL_ROLE] = {"ROLE", (int)role + 1, 4, false},
        [COL_RSS] = {"RSS", 7, 2, false},
        [COL_ANON] = {"ANON", 7, 6, false},
        [COL_UNIQUE] = {"UNIQUE", 8, 5, false},
        [COL_SWAP] = {"SWAP", 7, has_swap ? 8 : 0, false},
        [COL_GPU] = {"GPU", 7, has_gpu ? 7 : 0, false},
        [COL_PEAK] = {"PEAK", 7, 9, false},
        [COL_RATE] = {"RATE/min", 10, 3, false},
        [COL_SPARK] = {"TREND", SPARK_COLUMNS + 1, 10, false},
    };
    memcpy(ret, all, sizeof all);
    cell_columns_fit(ret, COL_COUNT, COLS, COLS < 60 ? 8 : NAME_COLUMNS);
}

/* Writes TEXT into the column at the pen's position. */
static void put_cell(struct pen *p, const struct cell_column *c, bool is_left, enum paint paint,
                     const char *text)
{
    int right = p->x + c->width;
    if (!is_left)
        pen_move(p, right - 1 - (int)cell_columns(text));
    pen_put(p, paint, text);
    pen_move(p, right);
}

static const enum column_id sort_columns[] = {
    [SORT_RSS] = COL_RSS,   [SORT_ANON] = COL_ANON, [SORT_UNIQUE] = COL_UNIQUE,
    [SORT_RATE] = COL_RATE, [SORT_PID] = COL_PID,   [SORT_GPU] = COL_GPU,
};

static void draw_titles(struct screen *s, int y, const struct cell_column *columns)
{
    struct pen p = pen_at(s, y);
    bool is_descending = (s->table.sort == SORT_PID) == s->table.is_reversed;
    pen_printf(&p, PAINT_HEAD, "%*s", COLS, "");
    p.x = 0;
    for (enum column_id id = 0; id < COL_COUNT; id++) {
        char title[32];
        bool is_sorted = sort_columns[s->table.sort] == id;
        if (!columns[id].is_shown)
            continue;
        snprintf(title, sizeof title, "%s%s", columns[id].title,
                 !is_sorted      ? ""
                 : is_descending ? "▼"
                                 : "▲");
        bool is_left = id == COL_ROLE || id == COL_SPARK;
        put_cell(&p, &columns[id], is_left, is_sorted ? PAINT_SORTED : PAINT_HEAD, title);
    }
    pen_put(&p, PAINT_HEAD, s->shows_command ? "COMMAND" : "NAME");
}

/* ---- one process ---- */

static enum paint paint_row(const struct frame_row *r)
{
    return r->info.role == ROLE_MAIN       ? PAINT_STRONG
           : r->info.role == ROLE_LAUNCHER ? PAINT_DIM
                                           : PAINT_PLAIN;
}

static void put_figure(struct pen *p, const struct cell_column *c, enum paint paint,
                       const struct frame_row *r, unsigned field)
{
    char text[CELL_MAX];
    const struct frame_bytes figure = frame_figure(&r->sample, field);
    put_cell(p, c, false, figure.stale || !figure.known ? PAINT_DIM : paint,
             cell_bytes(text, &figure));
}

static void put_column(struct pen *p, const struct cell_column *c, enum column_id id,
                       const struct frame_row *r)
{
    static const unsigned fields[COL_COUNT] = {
        [COL_ANON] = SAMPLE_ANON, [COL_UNIQUE] = SAMPLE_UNIQUE, [COL_SWAP] = SAMPLE_SWAP,
        [COL_GPU] = SAMPLE_GPU,   [COL_PEAK] = SAMPLE_PEAK,
    };
    char text[CELL_MAX], spark[SPARK_TEXT_MAX];
    switch (id) {
    case COL_PID:
        snprintf(text, sizeof text, "%d", (int)r->info.id.pid);
        put_cell(p, c, false, paint_row(r), text);
        break;
    case COL_ROLE:
        put_cell(p, c, true, paint_row(r),
                 cell_role(text, process_role_name(r->info.role), has_short_roles()));
        break;
    case COL_RATE:
        put_cell(p, c, false, paint_rate(p->screen->frame, r->rate_known, r->rate_bytes_per_min),
                 cell_rate(text, r->rate_known, r->rate_bytes_per_min));
        break;
    case COL_SPARK:
        spark_text(spark, r->spark, r->spark_count, SPARK_COLUMNS, p->screen->is_ascii);
        put_cell(p, c, true, PAINT_GOOD, spark);
        break;
    case COL_RSS:
        put_figure(p, c, paint_row(r), r, SAMPLE_RSS);
        break;
    default:
        put_figure(p, c, PAINT_PLAIN, r, fields[id]);
    }
}

static void put_name(struct pen *p, const struct frame_row *r, const struct table_line *line)
{
    char prefix[TABLE_PREFIX_MAX];
    size_t room = p->right > p->x ? (size_t)(p->right - p->x) : 0;
    if (!p->screen->table.is_flat)
        pen_put(p, PAINT_DIM, table_prefix(&p->screen->table, line, room / 2, prefix));
    if (p->screen->shows_command && r->info.cmdline_len > 0) {
        struct buf b = {0};
        text_command(&b, r->info.cmdline, r->info.cmdline_len);
        pen_put(p, paint_row(r), buf_str(&b));
        buf_fini(&b);
    } else {
        pen_raw(p, paint_row(r), 1000, r->info.comm, r->info.comm_len);
    }
    if (line->is_folded)
        pen_printf(p, PAINT_DIM, " (+%u folded)", line->below);
}

static void draw_line(struct screen *s, int y, size_t at, const struct cell_column *columns)
{
    const struct table_line *line = &s->table.lines[at];
    const struct frame_row *r = &s->frame->rows[line->row];
    struct pen p = pen_at(s, y);
    p.is_selected = at == s->cursor;
    for (enum column_id id = 0; id < COL_COUNT; id++)
        if (columns[id].is_shown)
            put_column(&p, &columns[id], id, r);
    put_name(&p, r, line);
    if (p.is_selected)
        pen_move(&p, COLS);
}

/* ---- hints on keys, and the help ---- */

static void draw_hints(struct screen *s, int y)
{
    struct pen p = pen_at(s, y);
    static const char *const hints[] = {"q quit",     "? help",  "m a u r p g sort", "t tree/flat",
                                        "space fold", "P pause", "c command",        "A attach"};
    char where[64];
    snprintf(where, sizeof where, "%zu/%zu", s->table.count ? s->cursor + 1 : 0, s->table.count);
    int columns = (int)strlen(where);
    p.right = COLS - columns - 1;
    pen_put(&p, PAINT_DIM, hints[0]);
    for (size_t i = 1; i < sizeof hints / sizeof *hints; i++)
        pen_item(&p, PAINT_DIM, hints[i]);
    p.right = COLS;
    if (p.x + columns < COLS) {
        pen_move(&p, COLS - columns);
        pen_put(&p, PAINT_DIM, where);
    }
}

static void draw_help(struct screen *s)
{
    static const char *const lines[] = {
        "m a u   sort by memory (RSS), anonymous, unique to the process",
        "r p g   sort by rate, pid, GPU memory; press again to reverse",
        "t       tree or flat list        c      whole command lines",
        "space   fold a branch            + -    open or fold all",
        "↑ ↓     move; PgUp, PgDn, Home, End     P  pause     q  quit",
        "A       find allocating lines: ebb attach to the selected process; q detaches",
        "",
        "RSS     resident; shared pages count in every process that has them",
        "UNIQUE  pages that only this process uses: freed when it exits",
        "PEAK    the highest value, including between samples",
        "RATE    slope of the baseline (the minima), not of the spikes",
        "job     memory of all its processes, each page counted once; two figures",
        "        are a lower and an upper bound",
        "psi     share of the last 10 s in which some / all tasks waited for memory",
        "~1.2G   not current: a new reading would delay the job;  – unknown",
    };
    enum { HELP_COLUMNS = 78, HELP_LINES = sizeof lines / sizeof *lines };
    int top = LINES > HELP_LINES + 4 ? (LINES - HELP_LINES) / 2 : 1;
    int left = COLS > HELP_COLUMNS ? (COLS - HELP_COLUMNS) / 2 : 0;
    for (int i = -1; i <= HELP_LINES; i++) {
        struct pen p = pen_at(s, top + i);
        p.right = left + HELP_COLUMNS < COLS ? left + HELP_COLUMNS : COLS;
        p.x = left;
        pen_printf(&p, PAINT_HEAD, "%*s", HELP_COLUMNS, "");
        p.x = left + 1;
        pen_put(&p, PAINT_HEAD,
                i < 0             ? "Keys (any key closes this)"
                : i == HELP_LINES ? ""
                                  : lines[i]);
    }
}

static void keep_cursor_in_sight(struct screen *s, size_t page)
{
    s->page = page;
    if (s->cursor >= s->table.count)
        s->cursor = s->table.count ? s->table.count - 1 : 0;
    if (s->cursor < s->top)
        s->top = s->cursor;
    if (page > 0 && s->cursor >= s->top + page)
        s->top = s->cursor - page + 1;
    if (s->top + page > s->table.count)
        s->top = s->table.count > page ? s->table.count - page : 0;
}

/* Draws, from the top: title, job, machine, GPUs, table head and rows, notice, keys. If the
 * terminal has too few lines, parts are omitted, but the rows last of all. */
void draw_all(struct screen *s)
{
    struct cell_column columns[COL_COUNT];
    if (!s->frame)
        return;
    bool has_notice = s->frame->notice && !s->is_notice_read && LINES >= 4;
    bool has_hints = LINES >= 7;
    int bottom = LINES - has_hints - has_notice;
    int most = LINES >= 10 ? bottom / 2 : bottom - 2;
    erase();
    int y = draw_head(s, most > 1 ? most : 1);
    if (y > 1 && LINES >= 14)
        y++;
    if (bottom - y >= 2) {
        choose_columns(s->frame, columns);
        draw_titles(s, y++, columns);
        keep_cursor_in_sight(s, (size_t)(bottom - y));
        for (size_t i = s->top; i < s->table.count && y < bottom; i++)
            draw_line(s, y++, i, columns);
    }
    if (has_notice) {
        struct pen p = pen_at(s, bottom);
        pen_raw(&p, PAINT_WARN, 1000, s->frame->notice, strlen(s->frame->notice));
    }
    if (has_hints)
        draw_hints(s, LINES - 1);
    if (s->shows_help)
        draw_help(s);
    refresh();
}
