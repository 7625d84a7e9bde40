/* Draws the live view: title, verdict, job, machine and GPUs, the table of processes, hints and
 * help. Only visible rows are formatted, however many processes there are. */
#include "present/screen_private.h"

#include <curses.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/text.h"
#include "judge/verdicts.h"
#include "present/cells.h"
#include "present/chart.h"
#include "present/verdict.h"

/* ---- the lines above the table ---- */

enum { LABEL_COLUMNS = 9, BAR_COLUMNS = 20, WIDE_COLUMNS = 96 };

static struct pen labelled(const struct screen *s, int y, const char *label)
{
    struct pen p = pen_at(s, y);
    pen_put(&p, PAINT_DIM, label);
    pen_move(&p, LABEL_COLUMNS);
    return p;
}

static void clock_text(char *out, size_t size, uint64_t wall_ns)
{
    time_t t = (time_t)(wall_ns / NS_PER_S);
    struct tm tm;
    if (!localtime_r(&t, &tm) || strftime(out, size, "%H:%M:%S", &tm) == 0)
        out[0] = '\0';
}

static void draw_title(struct screen *s, int y)
{
    const struct frame *f = s->frame;
    char right[128], clock[16], every[TEXT_TIME_MAX], since[TEXT_TIME_MAX];
    clock_text(clock, sizeof clock, f->wall_ns);
    snprintf(right, sizeof right, "every %s   %s   %s", text_duration(every, f->interval_ns),
             text_duration(since, f->t_ns), clock);
    struct pen p = pen_at(s, y);
    pen_put(&p, PAINT_STRONG, "ebb");
    pen_move(&p, p.x + 1);
    int columns = (int)cell_columns(right);
    int room = COLS - p.x - columns - 2;
    bool has_right = room > 16;
    if (f->title)
        pen_raw(&p, PAINT_PLAIN, has_right ? (size_t)room : (size_t)COLS, f->title,
                strlen(f->title));
    if (s->is_paused)
        pen_item(&p, PAINT_WARN, "PAUSED");
    if (has_right && p.x + 1 < COLS - columns) {
        pen_move(&p, COLS - columns);
        pen_put(&p, PAINT_DIM, right);
    }
}

/* Returns the minutes until RATE uses up the headroom, or -1 if the headroom does not shrink or is
 * unknown. */
static double minutes_left(const struct frame *f, bool known, double rate)
{
    const double noise = 1 << 20; /* growth slower than 1 MiB/min is not shown */
    if (!known || rate < noise || !f->headroom.known)
        return -1;
    return (double)f->headroom.bytes / rate;
}

/* Returns yellow if RATE uses up the headroom within an hour, red within ten minutes. */
static enum paint paint_rate(const struct frame *f, bool known, double rate)
{
    double left = minutes_left(f, known, rate);
    if (!known)
        return PAINT_DIM;
    return left < 0 ? PAINT_PLAIN : left < 10 ? PAINT_ALARM : left < 60 ? PAINT_WARN : PAINT_PLAIN;
}

static void draw_headroom(struct pen *p, const struct frame *f)
{
    char text[64], size[TEXT_SIZE_MAX];
    if (!f->headroom.known)
        return;
    bool is_low = f->headroom.bytes < f->machine.v[MACHINE_LIMIT] / 10;
    snprintf(text, sizeof text, "%s headroom", text_size(size, f->headroom.bytes));
    pen_item(p, is_low ? PAINT_ALARM : PAINT_STRONG, text);
}

/* Draws the location of the limit, such as a cgroup. The location is last on its line, because it
 * may be long. A limit of the whole host has no location. */
static void draw_limit(struct pen *p, const struct frame *f)
{
    char text[256], where[160], size[TEXT_SIZE_MAX];
    if (!sample_has(&f->machine, MACHINE_LIMIT) || !f->limit_where[0] ||
        strcmp(f->limit_where, "host") == 0)
        return;
    text_size(size, f->machine.v[MACHINE_LIMIT]);
    int room = p->right - p->x - 3 - (int)strlen("limit  ") - (int)strlen(size);
    if (room < 8)
        return;
    text_fit(where, sizeof where, room < 40 ? (size_t)room : 40, f->limit_where,
             strlen(f->limit_where));
    snprintf(text, sizeof text, "limit %s %s", size, where);
    pen_item(p, PAINT_DIM, text);
}

/* Draws a bar filled by USED, followed by text such as "3.10 GiB of 8.00 GiB WORD". */
static void draw_share(struct pen *p, uint64_t used, uint64_t shown, uint64_t total,
                       const char *word)
{
    char a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX];
    bool has_bar = COLS >= WIDE_COLUMNS;
    if (!total) {
        pen_put(p, PAINT_DIM, "–");
        return;
    }
    if (has_bar)
        pen_bar(p, BAR_COLUMNS, (double)used / (double)total);
    pen_move(p, p->x + has_bar);
    pen_printf(p, PAINT_PLAIN, "%s of %s %s", text_size(a, shown), text_size(b, total), word);
}

static void draw_machine(struct screen *s, int y)
{
    const struct frame *f = s->frame;
    const struct sample *m = &f->machine;
    const struct frame_bytes total = frame_figure(m, MACHINE_TOTAL);
    const struct frame_bytes available = frame_figure(m, MACHINE_AVAILABLE);
    const struct frame_bytes swap = frame_figure(m, MACHINE_SWAP_TOTAL);
    const struct frame_bytes unused = frame_figure(m, MACHINE_SWAP_FREE);
    char text[128], a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX];
    struct pen p = labelled(s, y, "machine");
    draw_share(&p, available.bytes < total.bytes ? total.bytes - available.bytes : 0,
               available.bytes, available.known ? total.bytes : 0, "available");
    draw_headroom(&p, f);
    if (sample_has(m, MACHINE_PSI_SOME)) {
        uint64_t some = m->v[MACHINE_PSI_SOME], full = frame_figure(m, MACHINE_PSI_FULL).bytes;
        snprintf(text, sizeof text, "psi %.1f/%.1f %%", (double)some / 100, (double)full / 100);
        pen_item(&p, full >= 1000 ? PAINT_ALARM : some >= 1000 ? PAINT_WARN : PAINT_PLAIN, text);
    }
    if (swap.bytes > 0 && unused.known) {
        snprintf(text, sizeof text, "swap %s of %s",
                 text_size(a, swap.bytes > unused.bytes ? swap.bytes - unused.bytes : 0),
                 text_size(b, swap.bytes));
        pen_item(&p, PAINT_PLAIN, text);
    }
    draw_limit(&p, f);
}

static void draw_rate(struct pen *p, const struct frame *f)
{
    char text[128], rate[CELL_MAX], left[TEXT_TIME_MAX];
    double minutes = minutes_left(f, f->tree_rate_known, f->tree_rate_bytes_per_min);
    if (!f->tree_rate_known)
        return;
    cell_rate_text(rate, f->tree_rate_bytes_per_min);
    enum paint paint = paint_rate(f, true, f->tree_rate_bytes_per_min);
    pen_item(p, paint, rate);
    if (minutes >= 0 && minutes < 24 * 60) {
        snprintf(text, sizeof text, "at this rate the headroom lasts %s",
                 text_duration(left, (uint64_t)(minutes * 60) * NS_PER_S));
        pen_item(p, paint, text);
    }
}

static void draw_job(struct screen *s, int y)
{
    const struct frame *f = s->frame;
    char text[128], a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX];
    const struct frame_bytes low = frame_figure(&f->machine, MACHINE_TREE_LOW);
    const struct frame_bytes high = frame_figure(&f->machine, MACHINE_TREE_HIGH);
    bool is_whole_machine = !high.known;
    struct pen p = labelled(s, y, is_whole_machine ? "system" : "job");
    if (!is_whole_machine) {
        text_size(a, low.known ? low.bytes : high.bytes);
        text_size(b, high.bytes);
        pen_put(&p, PAINT_STRONG, b[0] && strcmp(a, b) != 0 ? a : b);
        if (strcmp(a, b) != 0)
            pen_printf(&p, PAINT_STRONG, " – %s", b);
        draw_rate(&p, f);
    }
    snprintf(text, sizeof text, "%zu process%s", f->count, f->count == 1 ? "" : "es");
    if (is_whole_machine)
        pen_put(&p, PAINT_PLAIN, text);
    else
        pen_item(&p, PAINT_PLAIN, text);
    if (f->step_known) {
        snprintf(text, sizeof text, "step %lld", (long long)f->step);
        pen_item(&p, PAINT_PLAIN, text);
    }
}

static void draw_verdict(struct screen *s, int y)
{
    static const enum paint paints[] = {[VERDICT_LEAK_UNKNOWN] = PAINT_WARN,
                                        [VERDICT_LEAK_NO] = PAINT_GOOD,
                                        [VERDICT_LEAK_YES] = PAINT_ALARM};
    const struct judged *worst = verdict_worst(s->frame->verdicts);
    struct buf text = {0};
    struct pen p = labelled(s, y, "verdict");
    if (!worst)
        return;
    size_t toned = verdict_headline(&text, worst, s->frame->verdicts, true);
    if (!text.failed) {
        pen_raw(&p, paints[worst->result.leak], (size_t)COLS, text.data, toned);
        pen_raw(&p, PAINT_PLAIN, (size_t)COLS, text.data + toned, text.len - toned);
    }
    buf_fini(&text);
}

static void draw_gpu(struct screen *s, int y, size_t i)
{
    const struct frame_gpu *g = &s->frame->gpu[i];
    const struct frame_bytes used = frame_figure(&g->sample, GPU_USED);
    const struct frame_bytes job = frame_figure(&g->sample, GPU_JOB);
    char text[128], a[TEXT_SIZE_MAX];
    snprintf(text, sizeof text, "gpu %zu", i);
    struct pen p = labelled(s, y, text);
    draw_share(&p, used.bytes, used.bytes,
               used.known ? frame_figure(&g->sample, GPU_TOTAL).bytes : 0, "used");
    if (job.known && sample_has(&s->frame->machine, MACHINE_TREE_HIGH)) {
        snprintf(text, sizeof text, "this job %s", text_size(a, job.bytes));
        pen_item(&p, PAINT_STRONG, text);
    }
    pen_item(&p, PAINT_DIM, text_fit(text, sizeof text, 40, g->name, strlen(g->name)));
}

/* Draws title, machine, job and GPUs, as far as HEIGHT allows. Returns the line below them. */
static int draw_head(struct screen *s, int height)
{
    int y = 0;
    draw_title(s, y++);
    if (y < height && s->frame->verdicts)
        draw_verdict(s, y++);
    if (y < height)
        draw_job(s, y++);
    if (y < height)
        draw_machine(s, y++);
    size_t room = height > y ? (size_t)(height - y) : 0;
    for (size_t i = 0; i < s->frame->gpus && i < room; i++)
        draw_gpu(s, y++, i);
    return y;
}

/* ---- columns ---- */

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
        "RSS     resident; includes pages that are shared with other processes",
        "UNIQUE  pages that only this process uses: freed when it exits",
        "PEAK    maximum of RSS since the process started",
        "RATE    slope of the baseline (the minima), not of the spikes",
        "job     memory of all its processes, each page counted once; two values",
        "        are a lower and an upper bound",
        "psi     share of the last 10 s in which some / all tasks waited for memory",
        "~1.2G   not current: a new reading would delay the job;  – = unknown",
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
 * terminal has too few lines, the other parts are omitted before the rows. */
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
