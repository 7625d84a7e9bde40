/* Judges tables. The marks of a group of rows come from the group's own columns, or from the marks
 * file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judge/judge_private.h"
#include "trace/csv.h"

struct judge_entity *judge_group(const struct judge *j, struct run_entity *e)
{
    struct judge_entity *a = judge_entity(e);
    if (!a || a->rows)
        return a;
    a->rows = calloc(1, sizeof *a->rows);
    a->series = calloc(1, sizeof *a->series);
    if (!a->rows || !a->series || verdict_init(&a->series->series, &j->options.verdict) < 0) {
        free(a->rows);
        free(a->series);
        a->rows = NULL;
        a->series = NULL;
        return NULL;
    }
    a->series->tail.is_table = true;
    return a;
}

/* Passes to the series the oldest reading that was held back, and then the marks in its row. */
static void feed_held(struct judge_entity *a)
{
    tail_feed(&a->series->tail, &a->series->series);
    for (size_t i = 0; i < a->rows->n_held; i++)
        verdict_mark(&a->series->series, a->rows->held_ns, &a->rows->held[i]);
    a->rows->n_held = 0;
}

static void release(struct judge_entity *a)
{
    if (a->rows->n_held)
        feed_held(a);
    tail_release(&a->series->tail, &a->series->series);
}

/* Before the first row of a group, marks only update the group's clock. The first epoch of a late
 * group therefore begins with its first row. */
static void group_mark(struct judge_entity *a, int64_t t_ns, const struct mark *mark)
{
    struct verdict_mark marks[MARK_CLOCK_MARKS];
    size_t count = mark_clock_add(&a->rows->clock, mark, marks);
    if (!a->series->has_first)
        return;
    if (count)
        release(a);
    for (size_t i = 0; i < count; i++)
        verdict_mark(&a->series->series, t_ns, &marks[i]);
}

void judge_row_mark(struct judge *j, struct run_entity *e, int64_t t_ns, const struct mark *mark)
{
    struct judge_entity *a = judge_group(j, e);
    if (a)
        group_mark(a, t_ns, mark);
}

static void begin_group(struct judge_entity *a, int64_t t_ns)
{
    const struct mark_clock *c = &a->rows->clock;
    const struct verdict_mark begin = {.kind = VERDICT_MARK_BEGIN,
                                       .has_step = c->has_step,
                                       .step = c->step,
                                       .steps_per_epoch = c->steps_per_epoch,
                                       .examples = c->examples,
                                       .batch = c->batch,
                                       .max_steps = c->max_steps};
    a->series->has_first = true;
    a->series->first_ns = (uint64_t)t_ns;
    if (c->has_begun || c->has_step)
        verdict_mark(&a->series->series, t_ns, &begin);
}

/* Passes on the epoch length from the columns of the row or from the command line. */
static void row_lengths(const struct judge *j, struct judge_entity *a, int64_t t_ns,
                        const struct csv_row *row)
{
    struct judge_rows *g = a->rows;
    uint64_t examples = row->examples ? row->examples : j->options.examples;
    uint64_t batch = row->batch ? row->batch : j->options.batch;
    if (row->steps_per_epoch == g->steps_per_epoch && examples == g->examples && batch == g->batch)
        return;
    g->steps_per_epoch = row->steps_per_epoch;
    g->examples = examples;
    g->batch = batch;
    const struct verdict_mark facts = {.kind = VERDICT_MARK_SUBSTEP,
                                       .steps_per_epoch = row->steps_per_epoch,
                                       .examples = examples,
                                       .batch = batch};
    verdict_mark(&a->series->series, t_ns, &facts);
}

/* Ends the previous phase if ROW belongs to another phase. */
static void row_phase(struct judge_entity *a, int64_t t_ns, const struct csv_row *row)
{
    struct judge_rows *g = a->rows;
    char text[96];
    size_t len = row->phase_len < sizeof g->phase - 1 ? row->phase_len : sizeof g->phase - 1;
    if (strlen(g->phase) == len && memcmp(g->phase, row->phase, len) == 0)
        return;
    struct mark m = {.kind = MARK_PHASE, .text = text};
    m.len = (size_t)snprintf(text, sizeof text, "KIND=phase\nNAME=%s\nSTATE=end\n", g->phase);
    if (g->phase[0])
        group_mark(a, t_ns, &m);
    memcpy(g->phase, row->phase, len);
    g->phase[len] = '\0';
}

/* Converts the columns of ROW to marks and returns their number. */
static size_t row_columns(struct judge_entity *a, const struct csv_row *row,
                          struct verdict_mark marks[MARK_CLOCK_MARKS])
{
    struct mark_clock *c = &a->rows->clock;
    struct mark m = {.kind = row->has_step ? MARK_STEP : MARK_SUBSTEP};
    if (row->has_step) {
        m.has |= MARK_HAS_STEP;
        m.step = row->step;
    }
    if (row->has_epoch) {
        m.has |= MARK_HAS_EPOCH;
        m.epoch = row->epoch;
    }
    bool is_new = !c->has_step || c->step != (uint64_t)row->step;
    return (row->has_step && is_new) || row->has_epoch ? mark_clock_add(c, &m, marks) : 0;
}

/* Adds the reading of a row, then the marks of the row. The row's step ended before the row was
 * written. It therefore shows that the process was alive after the previous rows, but not that it
 * was alive after this row. */
static void feed_row(struct judge_entity *a, int64_t t_ns, const struct csv_row *row,
                     const struct verdict_mark *marks, size_t count)
{
    struct judge_series *s = a->series;
    if (!row->has_t) {
        verdict_update_step(&s->series, (uint64_t)row->step, row->value_bytes);
        for (size_t i = 0; i < count; i++)
            verdict_mark(&s->series, 0, &marks[i]);
        return;
    }
    if (count)
        release(a);
    else if (a->rows->n_held && tail_is_due(&s->tail, t_ns))
        feed_held(a);
    tail_update(&s->tail, &s->series, t_ns, row->value_bytes);
    if (count) {
        memcpy(a->rows->held, marks, count * sizeof *marks);
        a->rows->n_held = count;
        a->rows->held_ns = t_ns;
    }
}

void judge_row(struct judge *j, struct run_entity *e, int64_t t_ns, const struct csv_row *row)
{
    struct verdict_mark marks[MARK_CLOCK_MARKS];
    struct judge_entity *a = judge_group(j, e);
    size_t count = 0;
    if (!a)
        return;
    if (!a->series->has_first)
        begin_group(a, t_ns);
    row_lengths(j, a, t_ns, row);
    if (!j->run->table.has_marks) {
        row_phase(a, t_ns, row);
        count = row_columns(a, row, marks);
    }
    feed_row(a, t_ns, row, marks, count);
    a->has_rss = true;
    a->rss_bytes = row->value_bytes;
    if (a->rss_bytes > a->peak_bytes)
        a->peak_bytes = a->rss_bytes;
}

static void end_group(struct judge_entity *a, bool is_cut)
{
    if (a->rows->n_held && (is_cut || !tail_all_falls(&a->series->tail)))
        feed_held(a);
    if (is_cut) /* a recording that was cut off does not show how the job ended */
        tail_release(&a->series->tail, &a->series->series);
    else
        tail_end(&a->series->tail, &a->series->series);
}

/* Judges all groups of a table. Groups that are processes of one job share its limit. Other groups
 * are unrelated. */
void judge_table_update(struct judge *j)
{
    struct run_entity *e, *const *living;
    uint64_t sum = 0;
    for (size_t i = 0, n = judge_living(j, &living); i < n; i++) {
        const struct judge_entity *a = judge_known(living[i]);
        sum += a ? a->rss_bytes : 0;
    }
    for (size_t at = 0; (e = judge_next(j, RUN_PROCESS, &at));) {
        struct judge_entity *a = judge_known(e);
        if (!a->rows)
            continue;
        if (!j->is_closed)
            end_group(a, j->run->is_cut);
        const struct verdict_limit limit = {
            .known = j->options.limit.bytes > 0,
            .limit_bytes = j->options.limit.bytes,
            .other_bytes = j->run->table.is_job && !e->is_dead ? sum - a->rss_bytes : 0};
        judge_series_judge(a->series, &limit);
        if (a->peak_bytes > j->tree_peak_bytes)
            j->tree_peak_bytes = a->peak_bytes;
    }
}
