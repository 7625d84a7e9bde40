/* A table of any order and size, judged row by row: what is kept is bounded by its groups. */
#include "cli/verdict_csv.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/span.h"
#include "cli/verdict_csv_private.h"

enum { MARKS_MAX = 10 * 1000 * 1000 };

static const double span_max_s = 9e9; /* what fits into int64_t nanoseconds, either way */

/* ---- marks ---- */

static int take_mark(void *user, double t_s, const struct mark *mark)
{
    struct judged_table *t = user;
    if (t->marks_count == MARKS_MAX)
        return err_set(t->err, -E2BIG, "%s has more than %d marks", t->options->csv.marks_path,
                       MARKS_MAX);
    if (t->marks_count == t->marks_cap) {
        size_t cap = t->marks_cap ? t->marks_cap * 2 : 256;
        struct table_mark *marks = reallocarray(t->marks, cap, sizeof *marks);
        if (!marks)
            return err_set(t->err, -ENOMEM, "no memory for the marks of %s",
                           t->options->csv.marks_path);
        t->marks = marks;
        t->marks_cap = cap;
    }
    struct table_mark *m = &t->marks[t->marks_count];
    *m = (struct table_mark){.t_s = t_s, .at = t->marks_count, .mark = *mark};
    m->text = mark->kind == MARK_PHASE ? span_copy((struct span){mark->text, mark->len}) : NULL;
    m->mark.text = m->text ? m->text : "";
    m->mark.len = m->text ? mark->len : 0;
    if (mark->kind == MARK_STEP && mark->pid > 0 && !t->has_lead) {
        t->has_lead = true;
        t->lead_pid = mark->pid;
    }
    t->has_any_step = t->has_any_step || (mark->kind == MARK_STEP && (mark->has & MARK_HAS_STEP));
    t->marks_count++;
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct table_mark *x = a, *y = b;
    if (x->t_s < y->t_s || x->t_s > y->t_s)
        return x->t_s < y->t_s ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* When step N had ended, with what followed it directly: the last mark of a step up to N that comes
 * before the first of a later one. */
static double time_of_step(const struct judged_table *t, uint64_t n)
{
    double cut = -HUGE_VAL;
    for (size_t i = 0; i < t->marks_count; i++) {
        const struct mark *m = &t->marks[i].mark;
        if (!(m->has & MARK_HAS_STEP) || m->kind == MARK_BEGIN || m->kind == MARK_END)
            continue;
        if ((uint64_t)m->step > n && m->kind == MARK_STEP)
            break;
        if ((uint64_t)m->step <= n)
            cut = t->marks[i].t_s;
    }
    return cut;
}

static int read_marks(struct judged_table *t)
{
    const char *path = t->options->csv.marks_path;
    if (!path)
        return 0;
    t->has_marks_file = true;
    int r = csv_read_marks(path, take_mark, t, t->err);
    if (r < 0)
        return r;
    if (t->marks_count > 1)
        qsort(t->marks, t->marks_count, sizeof *t->marks, by_time);
    if (t->options->has_until_step && t->has_any_step) {
        double cut = time_of_step(t, t->options->until_step);
        t->cut_t = cut < t->cut_t ? cut : t->cut_t;
    }
    return 0;
}

/* ---- feeding ---- */

static int64_t ns_of(const struct judged_table *t, double t_s)
{
    return (int64_t)llround((t_s - t->first_t) * 1e9);
}

void judged_group_feed_held(struct judged_group *g)
{
    tail_feed(&g->tail, &g->series);
    for (size_t i = 0; i < g->n_held; i++)
        verdict_mark(&g->series, g->held_ns, &g->held[i]);
    g->n_held = 0;
}

static void release(struct judged_group *g)
{
    if (g->n_held)
        judged_group_feed_held(g);
    tail_release(&g->tail, &g->series);
}

static void say(const struct judged_table *t, struct judged_group *g, double t_s,
                const struct mark *mark)
{
    struct verdict_mark marks[MARK_CLOCK_MARKS];
    size_t count = mark_clock_add(&g->clock, mark, marks);
    if (count)
        release(g);
    for (size_t i = 0; i < count; i++)
        verdict_mark(&g->series, t->has_time ? ns_of(t, t_s) : 0, &marks[i]);
}

static bool concerns(const struct judged_table *t, const struct judged_group *g,
                     const struct mark *m)
{
    if (m->pid <= 0 || !t->has_lead)
        return true;
    return g->speaks ? m->pid == g->pid : m->pid == t->lead_pid;
}

/* To a group that comes late its own first pass begins with it. */
static void begin_late(const struct judged_table *t, struct judged_group *g, double t_s)
{
    struct verdict_mark unused[MARK_CLOCK_MARKS];
    for (; g->next_mark < t->marks_count && t->marks[g->next_mark].t_s < t_s; g->next_mark++)
        if (concerns(t, g, &t->marks[g->next_mark].mark))
            (void)mark_clock_add(&g->clock, &t->marks[g->next_mark].mark, unused);
    if (g->clock.has_begun || g->clock.has_step) {
        const struct verdict_mark begin = {.kind = VERDICT_MARK_BEGIN,
                                           .has_step = g->clock.has_step,
                                           .step = g->clock.step,
                                           .steps_per_epoch = g->clock.steps_per_epoch,
                                           .examples = g->clock.examples,
                                           .batch = g->clock.batch,
                                           .max_steps = g->clock.max_steps};
        verdict_mark(&g->series, ns_of(t, t_s), &begin);
    }
}

void judged_table_say_before(const struct judged_table *t, struct judged_group *g, double t_s)
{
    for (; g->next_mark < t->marks_count; g->next_mark++) {
        const struct table_mark *m = &t->marks[g->next_mark];
        if (m->t_s >= t_s || m->t_s > t->cut_t)
            break;
        if (concerns(t, g, &m->mark))
            say(t, g, m->t_s, &m->mark);
    }
}

/* Lengths that stand in columns of their own, or were given with the command. */
static void say_lengths(const struct judged_table *t, struct judged_group *g,
                        const struct csv_row *row)
{
    uint64_t examples = row->examples ? row->examples : t->options->examples;
    uint64_t batch = row->batch ? row->batch : t->options->batch;
    if (row->steps_per_epoch == g->steps_per_epoch && examples == g->examples && batch == g->batch)
        return;
    g->steps_per_epoch = row->steps_per_epoch;
    g->examples = examples;
    g->batch = batch;
    const struct verdict_mark facts = {.kind = VERDICT_MARK_SUBSTEP,
                                       .steps_per_epoch = row->steps_per_epoch,
                                       .examples = examples,
                                       .batch = batch};
    verdict_mark(&g->series, t->has_time ? ns_of(t, row->t_s) : 0, &facts);
}

/* The phase that this row is no longer in has ended. */
static void say_phase(const struct judged_table *t, struct judged_group *g,
                      const struct csv_row *row)
{
    char text[96];
    size_t len = row->phase_len < sizeof g->phase - 1 ? row->phase_len : sizeof g->phase - 1;
    if (strlen(g->phase) == len && memcmp(g->phase, row->phase, len) == 0)
        return;
    struct mark m = {.kind = MARK_PHASE, .text = text};
    m.len = (size_t)snprintf(text, sizeof text, "KIND=phase\nNAME=%s\nSTATE=end\n", g->phase);
    if (g->phase[0])
        say(t, g, row->t_s, &m);
    memcpy(g->phase, row->phase, len);
    g->phase[len] = '\0';
}

/* What the columns of ROW say, as marks; returns how many. */
static size_t hear_columns(struct judged_group *g, const struct csv_row *row,
                           struct verdict_mark marks[MARK_CLOCK_MARKS])
{
    struct mark m = {.kind = row->has_step ? MARK_STEP : MARK_SUBSTEP};
    if (row->has_step) {
        m.has |= MARK_HAS_STEP;
        m.step = row->step;
    }
    if (row->has_epoch) {
        m.has |= MARK_HAS_EPOCH;
        m.epoch = row->epoch;
    }
    bool is_new = !g->clock.has_step || g->clock.step != (uint64_t)row->step;
    if ((row->has_step && is_new) || row->has_epoch)
        return mark_clock_add(&g->clock, &m, marks);
    return 0;
}

/* A row's reading, then its marks. A step in a row was done before the row was written: it shows
 * that the process lived on after the rows before it, and not after this one. */
static void feed_row(const struct judged_table *t, struct judged_group *g,
                     const struct csv_row *row)
{
    struct verdict_mark marks[MARK_CLOCK_MARKS];
    size_t count = t->has_marks_file ? 0 : hear_columns(g, row, marks);
    if (!row->has_t) {
        verdict_update_step(&g->series, (uint64_t)row->step, row->value_bytes);
        for (size_t i = 0; i < count; i++)
            verdict_mark(&g->series, 0, &marks[i]);
        return;
    }
    int64_t t_ns = ns_of(t, row->t_s);
    if (count)
        release(g);
    else if (g->n_held && tail_is_due(&g->tail, t_ns))
        judged_group_feed_held(g);
    tail_update(&g->tail, &g->series, t_ns, row->value_bytes);
    if (count) {
        memcpy(g->held, marks, count * sizeof *marks);
        g->n_held = count;
        g->held_ns = t_ns;
    }
}

static bool is_beyond(const struct judged_table *t, struct judged_group *g,
                      const struct csv_row *row)
{
    const struct verdict_csv_options *o = t->options;
    if (row->has_t && row->t_s > t->cut_t)
        return true;
    if (o->has_until_step && !t->has_marks_file && row->has_step &&
        (uint64_t)row->step > o->until_step)
        g->is_cut = true;
    return g->is_cut;
}

static void feed(struct judged_table *t, struct judged_group *g, const struct csv_row *row)
{
    if (row->has_t && g->rows == 0)
        begin_late(t, g, row->t_s);
    say_lengths(t, g, row);
    if (row->has_t)
        judged_table_say_before(t, g, row->t_s);
    if (!t->has_marks_file)
        say_phase(t, g, row);
    feed_row(t, g, row);
    if (g->rows == 0)
        g->first_t = g->last_t = row->t_s;
    g->rows++;
    g->last_row = t->rows;
    g->last_t = row->t_s > g->last_t ? row->t_s : g->last_t;
    g->last_bytes = row->value_bytes;
    if (row->value_bytes > g->peak_bytes)
        g->peak_bytes = row->value_bytes;
}

static int check_time(struct judged_table *t, const struct csv_row *row)
{
    if (!t->has_first) {
        t->has_first = true;
        t->has_time = row->has_t;
        t->first_t = t->last_t = row->t_s;
    }
    if (!row->has_t && t->options->has_until)
        return err_set(t->err, -EINVAL,
                       "%s has no time: use --until-step, or name its time with "
                       "--time-column",
                       t->path);
    if (!row->has_t && t->has_marks_file)
        return err_set(t->err, -EINVAL,
                       "%s has no time, so the marks of %s have no place in it: name its time "
                       "with --time-column",
                       t->path, t->options->csv.marks_path);
    if (fabs(row->t_s - t->first_t) > span_max_s)
        return err_set(t->err, -EBADMSG,
                       "%s line %llu: time %g is more than 280 years from the first, %g: is it in "
                       "seconds?",
                       t->path, (unsigned long long)row->line, row->t_s, t->first_t);
    return 0;
}

static int take_row(void *user, const struct csv_row *row)
{
    struct judged_table *t = user;
    int r = check_time(t, row);
    if (r < 0)
        return r;
    t->rows++;
    t->has_any_step = t->has_any_step || row->has_step;
    struct judged_group *g = judged_group_of(t, row->group, row->group_len);
    if (!g)
        return err_set(t->err, -ENOMEM, "no memory to judge %s", t->path);
    if (is_beyond(t, g, row))
        return 0;
    feed(t, g, row);
    t->last_t = row->t_s > t->last_t ? row->t_s : t->last_t;
    return 0;
}

static int read_and_judge(struct judged_table *t, struct verdicts *ret)
{
    const struct verdict_csv_options *o = t->options;
    int r = read_marks(t);
    if (r == 0)
        r = csv_read(t->path, &o->csv, take_row, t, t->err);
    if (r < 0)
        return r;
    if (o->has_until_step && !t->has_any_step)
        return err_set(t->err, -EINVAL,
                       "--until-step %llu: %s has no steps; give its marks with --marks, or name "
                       "its steps with --step-column",
                       (unsigned long long)o->until_step, t->path);
    if (t->count == 0 && !judged_group_of(t, "", 0)) /* no row at all: an empty series */
        return err_set(t->err, -ENOMEM, "no memory to judge %s", t->path);
    judged_table_judge(t);
    r = judged_table_verdicts(t, ret);
    return r < 0 ? err_set(t->err, r, "no memory to judge %s", t->path) : 0;
}

int verdict_csv(const char *path, const struct verdict_csv_options *options, struct verdicts *ret,
                struct err *err)
{
    struct judged_table t = {.options = options, .path = path, .cut_t = HUGE_VAL, .err = err};
    if (options->has_until)
        t.cut_t = options->until_s;
    t.groups = calloc(GROUPS_MAX, sizeof(struct judged_group *));
    t.index = calloc(TABLE_SIZE, sizeof *t.index);
    int r = t.groups && t.index ? read_and_judge(&t, ret)
                                : err_set(err, -ENOMEM, "no memory to judge %s", path);
    for (size_t i = 0; i < t.count; i++)
        judged_group_free(t.groups[i]);
    for (size_t i = 0; i < t.marks_count; i++)
        free(t.marks[i].text);
    free(t.groups);
    free(t.index);
    free(t.marks);
    return r;
}
