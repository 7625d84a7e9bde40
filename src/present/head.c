/* Draws the lines above the table: title, machine, job, GPUs. */
#include "present/screen_private.h"

#include <curses.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/text.h"
#include "judge/verdicts.h"
#include "present/cells.h"
#include "present/verdict.h"

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

/* Returns the minutes until RATE uses up the headroom, or -1 if the headroom does not shrink. */
static double minutes_left(const struct frame *f, bool known, double rate)
{
    const double noise = 1 << 20; /* growth slower than 1 MiB/min is not shown */
    if (!known || rate < noise || !f->headroom.known)
        return -1;
    return (double)f->headroom.bytes / rate;
}

enum paint paint_rate(const struct frame *f, bool known, double rate)
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

/* Draws the location of the limit, last on its line because it may be long. If the limit is that of
 * the host, nothing is drawn. */
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
    size_t toned = verdict_headline(&text, worst, s->frame->verdicts);
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

int draw_head(struct screen *s, int height)
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
