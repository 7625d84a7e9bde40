/* Reads a run from a table. Each group of rows is a process, and the value in a row is its
 * resident memory. Rows may be in any order. Each group receives the marks up to its last row,
 * or all marks if it lasts until the end of the table. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/array.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"
#include "base/span.h"
#include "base/texts.h"
#include "run/run.h"
#include "trace/csv.h"

enum {
    GROUPS_MAX = 4096, /* maximum number of groups in memory */
    MARKS_MAX = 10 * 1000 * 1000,
    /* a group has ended if its last row is more than this many seconds before the table's last
     * row */
    GONE_S = 10,
};

/* Largest number of seconds that fits into int64_t nanoseconds, positive or negative. */
static const double span_max_s = 9e9;

struct csv_group {
    struct run_entity *e;
    const char *name; /* points into csv_run.names; not escaped */
    uint64_t rows, last_row;
    double first_t, last_t;
    size_t next_mark;
    bool sends_steps; /* true if the marks file has steps of this group */
    bool is_cut;      /* true if until_step was reached */
};

struct csv_mark {
    double t_s;
    size_t at; /* position in the marks file; marks with equal times are sorted by position */
    struct mark mark;
    char *text; /* owned copy of the mark's text; NULL if not stored */
};

struct csv_run {
    const char *path;
    const struct csv_options *options;
    struct run *run;
    struct csv_group **groups;
    struct texts names; /* names of the groups, in the order of GROUPS */
    size_t count;
    uint32_t next_slot;
    struct csv_mark *marks;
    size_t mark_count, mark_cap;
    bool has_leader, has_any_step;
    int32_t leader; /* pid of the first process that reports a step */
    bool has_first, has_time;
    char phase[32]; /* phase in the newest row, truncated */
    double first_t, last_t;
    double cut_t; /* time after which rows and marks are ignored */
    struct err *err;
};

static int no_memory(const struct csv_run *c)
{
    return err_set(c->err, -ENOMEM, "out of memory while reading the table %s", c->path);
}

/* ---- marks ---- */

static int take_mark(void *user, double t_s, const struct mark *mark)
{
    struct csv_run *c = user;
    if (c->mark_count == MARKS_MAX)
        return err_set(c->err, -E2BIG, "%s has more than %d marks", c->options->marks_path,
                       MARKS_MAX);
    if (!ARRAY_ROOM(c->marks, c->mark_count, c->mark_cap))
        return no_memory(c);
    struct csv_mark *m = &c->marks[c->mark_count];
    bool has_text = mark->kind == MARK_PHASE || c->run->options.marks;
    *m = (struct csv_mark){.t_s = t_s, .at = c->mark_count, .mark = *mark};
    m->text = has_text ? span_copy((struct span){mark->text, mark->len}) : NULL;
    m->mark.text = m->text ? m->text : "";
    m->mark.len = m->text ? mark->len : 0;
    if (mark->kind == MARK_STEP && mark->pid > 0 && !c->has_leader) {
        c->has_leader = true;
        c->leader = mark->pid;
    }
    c->has_any_step = c->has_any_step || (mark->kind == MARK_STEP && mark->has & MARK_HAS_STEP);
    c->mark_count++;
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct csv_mark *x = a, *y = b;
    if (x->t_s < y->t_s || x->t_s > y->t_s)
        return x->t_s < y->t_s ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* Returns the time of the last mark that belongs to step N. Marks that directly follow a step
 * belong to that step, so this is the last mark before the first mark of a later step. */
static double time_of_step(const struct csv_run *c, uint64_t n)
{
    double cut = -HUGE_VAL;
    for (size_t i = 0; i < c->mark_count; i++) {
        const struct mark *m = &c->marks[i].mark;
        if (!(m->has & MARK_HAS_STEP) || m->kind == MARK_BEGIN || m->kind == MARK_END)
            continue;
        if ((uint64_t)m->step > n && m->kind == MARK_STEP)
            break;
        if ((uint64_t)m->step <= n)
            cut = c->marks[i].t_s;
    }
    return cut;
}

static int read_marks(struct csv_run *c)
{
    const struct run_settings *o = &c->run->options;
    int r = csv_read_marks(c->options->marks_path, take_mark, c, c->err);
    if (r < 0)
        return r;
    if (c->mark_count > 1)
        qsort(c->marks, c->mark_count, sizeof *c->marks, by_time);
    if (o->has_until_step && c->has_any_step)
        c->cut_t = fmin(c->cut_t, time_of_step(c, o->until_step));
    return 0;
}

/* ---- groups ---- */

static int by_rows(const void *a, const void *b)
{
    const struct csv_group *x = *(struct csv_group *const *)a;
    const struct csv_group *y = *(struct csv_group *const *)b;
    if (x->rows != y->rows)
        return x->rows < y->rows ? 1 : -1;
    return x->last_row < y->last_row ? 1 : -1;
}

/* Makes room by dropping half of the groups: those with the fewest rows or, if they have equally
 * many, those whose last rows are oldest. */
static int drop_half(struct csv_run *c)
{
    struct texts kept = {0};
    int r = 0;
    qsort(c->groups, c->count, sizeof(struct csv_group *), by_rows);
    while (c->count > GROUPS_MAX / 2) {
        struct csv_group *g = c->groups[--c->count];
        c->run->table.dropped_rows += g->rows;
        g->e->is_dead = true;
        free(g);
    }
    run_drop_marked(c->run);
    for (size_t i = 0; r == 0 && i < c->count; i++) {
        struct csv_group *g = c->groups[i];
        uint32_t number;
        r = texts_add(&kept, g->name, strlen(g->name), &number);
        g->name = r == 0 ? kept.items[number] : NULL;
    }
    texts_fini(&c->names);
    c->names = kept;
    return r;
}

static bool has_own_steps(const struct csv_run *c, int32_t pid)
{
    for (size_t i = 0; pid > 0 && c->has_leader && i < c->mark_count; i++)
        if (c->marks[i].mark.kind == MARK_STEP && c->marks[i].mark.pid == pid)
            return true;
    return false;
}

static struct process_info group_info(const char *name, size_t len)
{
    struct process_info info = {.role = ROLE_OTHER};
    int64_t pid;
    if (number_parse_i64(name, len, &pid) == 0 && pid > 0 && pid <= INT32_MAX)
        info.id.pid = (int32_t)pid;
    info.comm_len = (uint16_t)(len < sizeof info.comm ? len : sizeof info.comm);
    memcpy(info.comm, name, info.comm_len);
    info.cmdline_len = (uint16_t)(len < sizeof info.cmdline ? len : sizeof info.cmdline);
    memcpy(info.cmdline, name, info.cmdline_len);
    return info;
}

/* Finds the group NAME, or creates it. Returns NULL if out of memory. */
static struct csv_group *find_group(struct csv_run *c, const char *name, size_t len)
{
    uint32_t at;
    if (texts_add(&c->names, name, len, &at) < 0)
        return NULL;
    if (at < c->count)
        return c->groups[at];
    if (c->count == GROUPS_MAX && (drop_half(c) < 0 || texts_add(&c->names, name, len, &at) < 0))
        return NULL;
    struct process_info info = group_info(name, len);
    struct csv_group *g = calloc(1, sizeof *g);
    if (!g)
        return NULL;
    g->name = c->names.items[at];
    g->e = run_process(c->run, c->run->now_ns, PROCESS_BORN, c->next_slot++, &info);
    if (!g->e) {
        free(g);
        return NULL;
    }
    g->sends_steps = has_own_steps(c, info.id.pid);
    c->groups[c->count++] = g;
    return g;
}

/* ---- rows ---- */

static int64_t csv_ns(const struct csv_run *c, double t_s)
{
    return c->has_time ? (int64_t)llround((t_s - c->first_t) * 1e9) : 0;
}

/* Returns the time of ROW on the run's clock. In a table without times, each step takes one
 * second. */
static uint64_t csv_run_ns(const struct csv_run *c, const struct csv_row *row)
{
    int64_t ns = row->has_t ? csv_ns(c, row->t_s) : row->step * (int64_t)NS_PER_S;
    return ns > 0 ? (uint64_t)ns : 0;
}

static bool concerns(const struct csv_run *c, const struct csv_group *g, const struct mark *m)
{
    if (m->pid <= 0 || !c->has_leader)
        return true;
    return m->pid == (g->sends_steps ? g->e->info.id.pid : c->leader);
}

/* Passes to the observers all marks before T_S that they have not received for group G yet. */
static void deliver_marks(struct csv_run *c, struct csv_group *g, double t_s)
{
    for (; g->next_mark < c->mark_count; g->next_mark++) {
        const struct csv_mark *m = &c->marks[g->next_mark];
        if (m->t_s >= t_s || m->t_s > c->cut_t)
            break;
        if (!concerns(c, g, &m->mark))
            continue;
        RUN_NOTIFY(c->run, row_mark, c->run, g->e, csv_ns(c, m->t_s), &m->mark);
    }
}

/* Adds the marks to the run in order of time. */
static void add_marks(struct csv_run *c)
{
    for (size_t i = 0; c->run->options.marks && i < c->mark_count; i++) {
        struct mark m = c->marks[i].mark;
        int64_t ns = csv_ns(c, c->marks[i].t_s);
        m.t_ns = ns > 0 ? (uint64_t)ns : 0;
        if (c->marks[i].t_s <= c->cut_t)
            run_add_mark(c->run, &m);
    }
}

static void add_phase(struct csv_run *c, const char *state)
{
    char text[96];
    struct mark m;
    int len = snprintf(text, sizeof text, "KIND=phase\nNAME=%s\nSTATE=%s\n", c->phase, state);
    if (!c->phase[0] || mark_parse(text, (size_t)len, &m) < 0)
        return;
    m.t_ns = c->run->tick_ns;
    run_add_mark(c->run, &m);
}

/* Adds marks from the step and phase columns. All processes of a job have the same steps and
 * phases, so only those of one process are added. */
static void add_columns(struct csv_run *c, const struct csv_row *row)
{
    struct run *run = c->run;
    struct mark m = {.t_ns = run->tick_ns, .kind = MARK_STEP, .has = MARK_HAS_STEP, .text = ""};
    size_t len = row->phase_len < sizeof c->phase ? row->phase_len : sizeof c->phase - 1;
    if (!run->options.marks || c->options->marks_path || run->tick_ns < run->now_ns)
        return;
    m.step = row->step;
    m.epoch = row->epoch;
    m.has |= row->has_epoch ? MARK_HAS_EPOCH : 0;
    if (row->has_step && (!run->has_step || run->step != row->step))
        run_add_mark(run, &m);
    if (strlen(c->phase) == len && memcmp(c->phase, row->phase, len) == 0)
        return;
    add_phase(c, "end");
    memcpy(c->phase, row->phase, len);
    c->phase[len] = '\0';
    add_phase(c, "begin");
}

static int begin_table(struct csv_run *c, const struct csv_row *row)
{
    bool is_unix = row->has_t && row->t_s >= 1e8 && row->t_s < 1e11;
    c->has_first = true;
    c->has_time = row->has_t;
    c->first_t = c->last_t = row->t_s;
    c->run->start_wall_ns = is_unix ? (uint64_t)llround(row->t_s * 1e6) * NS_PER_US : 0;
    c->run->table.is_by_step = !row->has_t;
    if (!row->has_t && c->options->has_until)
        return err_set(
            c->err, -EINVAL,
            "%s has no time column; use --until-step, or name the column with --time-column",
            c->path);
    if (!row->has_t && c->options->marks_path)
        return err_set(
            c->err, -EINVAL,
            "%s has no time column, so the marks in %s cannot be used; name the column with "
            "--time-column",
            c->path, c->options->marks_path);
    add_marks(c);
    return 0;
}

static bool is_beyond(const struct csv_run *c, struct csv_group *g, const struct csv_row *row)
{
    const struct run_settings *o = &c->run->options;
    if (row->has_t && row->t_s > c->cut_t)
        return true;
    if (o->has_until_step && !c->options->marks_path && row->has_step &&
        (uint64_t)row->step > o->until_step)
        g->is_cut = true;
    return g->is_cut;
}

static void add_row(struct csv_run *c, struct csv_group *g, const struct csv_row *row)
{
    if (row->has_t)
        deliver_marks(c, g, row->t_s);
    c->run->tick_ns = csv_run_ns(c, row);
    if (g->rows++ == 0) {
        g->first_t = g->last_t = row->t_s;
        g->e->born_ns = g->e->execed_ns = c->run->tick_ns;
    }
    g->last_row = c->run->ticks;
    g->last_t = fmax(g->last_t, row->t_s);
    add_columns(c, row);
    if (c->run->tick_ns > c->run->now_ns)
        c->run->now_ns = c->run->tick_ns;
    run_add_value(c->run, g->e, SAMPLE_RSS, row->value_bytes);
    RUN_NOTIFY(c->run, row, c->run, g->e, csv_ns(c, row->t_s), row);
}

static int take_row(void *user, const struct csv_row *row)
{
    struct csv_run *c = user;
    int r = c->has_first ? 0 : begin_table(c, row);
    if (r < 0)
        return r;
    if (fabs(row->t_s - c->first_t) > span_max_s)
        return err_set(
            c->err, -EBADMSG,
            "%s line %" PRIu64
            ": time %g is more than 280 years from the first time, %g; times must be in seconds",
            c->path, row->line, row->t_s, c->first_t);
    c->run->ticks++;
    c->has_any_step = c->has_any_step || row->has_step;
    struct csv_group *g = find_group(c, row->group, row->group_len);
    if (!g)
        return no_memory(c);
    if (is_beyond(c, g, row))
        return 0;
    add_row(c, g, row);
    c->last_t = fmax(c->last_t, row->t_s);
    return 0;
}

/* ---- the whole table ---- */

static bool has_ended(const struct csv_run *c, const struct csv_group *g)
{
    double pace = g->rows > 1 ? (g->last_t - g->first_t) / (double)(g->rows - 1) : 0;
    return c->has_time && c->last_t - g->last_t > fmax(GONE_S, 3 * pace);
}

/* Passes the remaining marks to groups that last until the end of the table. Reports the exit of
 * groups that end earlier. */
static void end_table(struct csv_run *c)
{
    for (size_t i = 0; i < c->count; i++) {
        struct csv_group *g = c->groups[i];
        int64_t ns = csv_ns(c, g->last_t);
        if (!has_ended(c, g)) {
            deliver_marks(c, g, HUGE_VAL);
            continue;
        }
        struct process_info info = g->e->info;
        run_process(c->run, ns > 0 ? (uint64_t)ns : 0, PROCESS_DIED, g->e->id, &info);
    }
    c->run->tick_ns = c->has_time ? (uint64_t)csv_ns(c, c->last_t) : c->run->now_ns;
}

static int csv_run_fill(struct csv_run *c)
{
    const struct run_settings *o = &c->run->options;
    int r = c->options->marks_path ? read_marks(c) : 0;
    if (r == 0)
        r = csv_read(c->path, c->options, take_row, c, c->err);
    if (r < 0)
        return r;
    if (o->has_until_step && !c->has_any_step)
        return err_set(c->err, -EINVAL,
                       "--until-step %" PRIu64 ": %s has no steps; give its marks with --marks, or "
                       "name its column of steps with --step-column",
                       o->until_step, c->path);
    /* if the table has no rows, an empty series is added */
    if (c->count == 0 && !find_group(c, "", 0))
        return no_memory(c);
    end_table(c);
    return c->run->has_failed ? no_memory(c) : 0;
}

int run_read_csv(const char *path, const struct run_settings *settings,
                 struct run_observer *observers, struct run **ret, struct err *err)
{
    const struct csv_options *options = &settings->csv;
    struct csv_run c = {.path = path, .options = options, .cut_t = HUGE_VAL, .err = err};
    int r = run_new(settings, 0, &c.run);
    if (r < 0)
        return no_memory(&c);
    c.run->options.dead = GROUPS_MAX;
    c.run->observers = observers;
    c.run->table.is_rows = true;
    c.run->table.has_marks = options->marks_path;
    c.run->table.is_job = !options->group || strcasecmp(options->group, "pid") == 0;
    c.run->is_cut = options->has_until || settings->has_until_step;
    if (options->has_until)
        c.cut_t = options->until_s;
    c.groups = calloc(GROUPS_MAX, sizeof(struct csv_group *));
    r = c.groups ? csv_run_fill(&c) : no_memory(&c);
    for (size_t i = 0; c.groups && i < c.count; i++)
        free(c.groups[i]);
    for (size_t i = 0; i < c.mark_count; i++)
        free(c.marks[i].text);
    free(c.groups);
    texts_fini(&c.names);
    free(c.marks);
    if (r < 0)
        run_free(c.run);
    else
        *ret = c.run;
    return r;
}
