/* Tables of any order and size, judged row by row: what is kept is bounded by the number of groups,
 * and of those the ones with the most rows are kept. */
#include "cli/verdict_csv.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/err.h"
#include "base/json.h"
#include "base/number.h"
#include "engine/jury.h"
#include "profile/mark_clock.h"
#include "engine/jury_json.h"
#include "verdict/tail.h"

enum {
    GROUPS_MAX = 4096, /* judged at one time; 10 KB each */
    GROUPS_LISTED = 64,
    TABLE_SIZE = 4 * GROUPS_MAX, /* of the hash: a power of two */
    MARKS_MAX = 10 * 1000 * 1000,
    GONE_S = 10, /* a group with no row for so long at the end has ended before */
};

static const double span_max_s = 9e9; /* what fits into int64_t nanoseconds, either way */

struct group {
    char *name; /* raw, NUL-ended */
    size_t len;
    uint64_t hash;
    int32_t pid; /* 0: not a number */
    bool speaks; /* marks of its own are in the file */
    bool is_cut; /* --until-step has been reached */
    uint64_t rows, last_row;
    double first_t, last_t;
    uint64_t last_bytes, peak_bytes;
    uint64_t steps_per_epoch, examples, batch; /* last told to the series */
    size_t next_mark;
    char phase[32]; /* cut */
    struct mark_clock clock;
    struct verdict_series series;
    struct tail tail; /* its newest readings may be its exit */
    /* Marks that stand in the row of the oldest reading held, and share its fate. */
    struct verdict_mark held[MARK_CLOCK_MARKS];
    size_t n_held;
    int64_t held_ns;
    struct verdict_result result;
};

struct table_mark {
    double t_s;
    size_t at; /* in the file, to keep the order of equals */
    struct mark mark;
    char *text; /* of phases; owned */
};

struct table {
    const struct verdict_csv_options *options;
    const char *path;
    struct group **groups;
    uint32_t *index; /* number + 1 */
    size_t count;
    uint64_t rows, dropped_groups, dropped_rows;
    struct table_mark *marks;
    size_t marks_count, marks_cap;
    bool has_marks_file, has_lead;
    int32_t lead_pid;
    bool has_time, has_any_step, has_first;
    double first_t, last_t;
    double cut_t; /* rows and marks behind it were not known then */
    struct err *err;
};

/* LEN bytes with a NUL behind them; S need not have one, so it is not strndup's. */
static char *copy_text(const char *s, size_t len)
{
    char *copy = malloc(len + 1);
    if (copy) {
        memcpy(copy, s, len);
        copy[len] = '\0';
    }
    return copy;
}

/* ---- marks ---- */

static int take_mark(void *user, double t_s, const struct mark *mark)
{
    struct table *t = user;
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
    m->text = mark->kind == MARK_PHASE ? copy_text(mark->text, mark->len) : NULL;
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
static double time_of_step(const struct table *t, uint64_t n)
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

static int read_marks(struct table *t)
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

/* ---- groups ---- */

static uint64_t hash_of(const char *s, size_t len)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * UINT64_C(1099511628211);
    return h;
}

static void group_free(struct group *g)
{
    if (g)
        free(g->name);
    free(g);
}

static size_t slot_of(const struct table *t, uint64_t hash, const char *s, size_t len)
{
    size_t at = hash & (TABLE_SIZE - 1);
    for (; t->index[at]; at = (at + 1) & (TABLE_SIZE - 1)) {
        const struct group *g = t->groups[t->index[at] - 1];
        if (g->hash == hash && g->len == len && memcmp(g->name, s, len) == 0)
            break;
    }
    return at;
}

static int by_rows(const void *a, const void *b)
{
    const struct group *x = *(const struct group *const *)a;
    const struct group *y = *(const struct group *const *)b;
    if (x->rows != y->rows)
        return x->rows < y->rows ? 1 : -1;
    return x->last_row < y->last_row ? 1 : -1;
}

/* No room: of the groups with the fewest rows, and longest without one, half go. */
static void drop_half(struct table *t)
{
    qsort(t->groups, t->count, sizeof(struct group *), by_rows);
    for (size_t i = GROUPS_MAX / 2; i < t->count; i++) {
        t->dropped_groups++;
        t->dropped_rows += t->groups[i]->rows;
        group_free(t->groups[i]);
    }
    t->count = GROUPS_MAX / 2;
    memset(t->index, 0, TABLE_SIZE * sizeof *t->index);
    for (size_t i = 0; i < t->count; i++) {
        const struct group *g = t->groups[i];
        t->index[slot_of(t, g->hash, g->name, g->len)] = (uint32_t)i + 1;
    }
}

static bool has_own_marks(const struct table *t, int32_t pid)
{
    for (size_t i = 0; pid > 0 && t->has_lead && i < t->marks_count; i++)
        if (t->marks[i].mark.kind == MARK_STEP && t->marks[i].mark.pid == pid)
            return true;
    return false;
}

static struct group *group_new(const struct table *t, const char *name, size_t len)
{
    struct group *g = calloc(1, sizeof *g);
    int64_t pid;
    if (!g)
        return NULL;
    g->name = copy_text(name, len);
    g->len = len;
    if (!g->name || verdict_init(&g->series, &t->options->verdict) < 0) {
        group_free(g);
        return NULL;
    }
    if (number_parse_i64(name, len, &pid) == 0 && pid > 0 && pid <= INT32_MAX)
        g->pid = (int32_t)pid;
    g->speaks = has_own_marks(t, g->pid);
    g->tail.is_table = true;
    return g;
}

static struct group *group_of(struct table *t, const char *name, size_t len)
{
    uint64_t hash = hash_of(name, len);
    size_t at = slot_of(t, hash, name, len);
    if (t->index[at])
        return t->groups[t->index[at] - 1];
    if (t->count == GROUPS_MAX) {
        drop_half(t);
        at = slot_of(t, hash, name, len);
    }
    struct group *g = group_new(t, name, len);
    if (!g)
        return NULL;
    g->hash = hash;
    t->groups[t->count++] = g;
    t->index[at] = (uint32_t)t->count;
    return g;
}

/* ---- feeding ---- */

static int64_t ns_of(const struct table *t, double t_s)
{
    return (int64_t)llround((t_s - t->first_t) * 1e9);
}

/* The oldest reading held counts, and so do the marks of its row. */
static void feed_held(struct group *g)
{
    tail_feed(&g->tail, &g->series);
    for (size_t i = 0; i < g->n_held; i++)
        verdict_mark(&g->series, g->held_ns, &g->held[i]);
    g->n_held = 0;
}

static void release(struct group *g)
{
    if (g->n_held)
        feed_held(g);
    tail_release(&g->tail, &g->series);
}

static void say(const struct table *t, struct group *g, double t_s, const struct mark *mark)
{
    struct verdict_mark marks[MARK_CLOCK_MARKS];
    size_t count = mark_clock_hear(&g->clock, mark, marks);
    if (count)
        release(g);
    for (size_t i = 0; i < count; i++)
        verdict_mark(&g->series, t->has_time ? ns_of(t, t_s) : 0, &marks[i]);
}

static bool concerns(const struct table *t, const struct group *g, const struct mark *m)
{
    if (m->pid <= 0 || !t->has_lead)
        return true;
    return g->speaks ? m->pid == g->pid : m->pid == t->lead_pid;
}

/* To a group that comes late its own first pass begins with it. */
static void begin_late(const struct table *t, struct group *g, double t_s)
{
    struct verdict_mark unused[MARK_CLOCK_MARKS];
    for (; g->next_mark < t->marks_count && t->marks[g->next_mark].t_s < t_s; g->next_mark++)
        if (concerns(t, g, &t->marks[g->next_mark].mark))
            (void)mark_clock_hear(&g->clock, &t->marks[g->next_mark].mark, unused);
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

static void say_marks_before(const struct table *t, struct group *g, double t_s)
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
static void say_lengths(const struct table *t, struct group *g, const struct csv_row *row)
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
static void say_phase(const struct table *t, struct group *g, const struct csv_row *row)
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
static size_t hear_columns(struct group *g, const struct csv_row *row,
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
        return mark_clock_hear(&g->clock, &m, marks);
    return 0;
}

/* A row's reading, then its marks. A step in a row was done before the row was written: it shows
 * that the process lived on after the rows before it, and not after this one. */
static void feed_row(const struct table *t, struct group *g, const struct csv_row *row)
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
        feed_held(g);
    tail_update(&g->tail, &g->series, t_ns, row->value_bytes);
    if (count) {
        memcpy(g->held, marks, count * sizeof *marks);
        g->n_held = count;
        g->held_ns = t_ns;
    }
}

static bool is_beyond(const struct table *t, struct group *g, const struct csv_row *row)
{
    const struct verdict_csv_options *o = t->options;
    if (row->has_t && row->t_s > t->cut_t)
        return true;
    if (o->has_until_step && !t->has_marks_file && row->has_step &&
        (uint64_t)row->step > o->until_step)
        g->is_cut = true;
    return g->is_cut;
}

static void feed(struct table *t, struct group *g, const struct csv_row *row)
{
    if (row->has_t && g->rows == 0)
        begin_late(t, g, row->t_s);
    say_lengths(t, g, row);
    if (row->has_t)
        say_marks_before(t, g, row->t_s);
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

static int check_time(struct table *t, const struct csv_row *row)
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
    struct table *t = user;
    int r = check_time(t, row);
    if (r < 0)
        return r;
    t->rows++;
    t->has_any_step = t->has_any_step || row->has_step;
    struct group *g = group_of(t, row->group, row->group_len);
    if (!g)
        return err_set(t->err, -ENOMEM, "no memory to judge %s", t->path);
    if (is_beyond(t, g, row))
        return 0;
    feed(t, g, row);
    t->last_t = row->t_s > t->last_t ? row->t_s : t->last_t;
    return 0;
}

/* ---- judging ---- */

static bool is_alive(const struct table *t, const struct group *g)
{
    double pace = g->rows > 1 ? (g->last_t - g->first_t) / (double)(g->rows - 1) : 0;
    return !t->has_time || t->last_t - g->last_t <= fmax(GONE_S, 3 * pace);
}

static int by_peak(const void *a, const void *b)
{
    const struct group *x = *(const struct group *const *)a;
    const struct group *y = *(const struct group *const *)b;
    if (x->peak_bytes != y->peak_bytes)
        return x->peak_bytes < y->peak_bytes ? 1 : -1;
    int names = strcmp(x->name, y->name);
    return names ? names : (x->last_row > y->last_row) - (x->last_row < y->last_row);
}

/* Processes of one job share its limit; other groups stand alone. */
static bool is_job(const struct table *t)
{
    return !t->options->csv.group || strcasecmp(t->options->csv.group, "pid") == 0;
}

/* Asked for what was known at some time: the table's end is nobody's. */
static bool is_cut(const struct table *t)
{
    return t->options->has_until || t->options->has_until_step;
}

static void judge(struct table *t)
{
    double alive_bytes = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct group *g = t->groups[i];
        if (!is_alive(t, g))
            continue;
        say_marks_before(t, g, HUGE_VAL);
        alive_bytes += (double)g->last_bytes;
    }
    for (size_t i = 0; i < t->count; i++) {
        struct group *g = t->groups[i];
        if (g->n_held && (is_cut(t) || !tail_all_falls(&g->tail)))
            feed_held(g);
        if (is_cut(t))
            tail_release(&g->tail, &g->series);
        else
            tail_end(&g->tail, &g->series);
    }
    for (size_t i = 0; i < t->count; i++) {
        struct group *g = t->groups[i];
        double others = is_job(t) && is_alive(t, g) ? alive_bytes - (double)g->last_bytes : 0;
        const struct verdict_limit limit = {.known = t->options->limit_bytes > 0,
                                            .limit_bytes = t->options->limit_bytes,
                                            .other_bytes = others > 0 ? (uint64_t)others : 0};
        verdict_judge(&g->series, &limit, &g->result);
    }
}

static json_t *group_json(const struct table *t, const struct group *g)
{
    json_t *o = json_object();
    json_t *result = jury_result_json(&g->result, t->has_time ? g->first_t - t->first_t : 0);
    if (is_job(t) && g->pid > 0)
        json_object_set_new(o, "pid", json_integer(g->pid));
    json_object_set_new(o, "group", json_text(g->name, g->len));
    json_object_set_new(o, "name", json_text(g->name, g->len));
    json_object_set_new(o, "alive", json_boolean(is_alive(t, g)));
    json_object_set_new(o, "rss_bytes", g->rows ? json_u64(g->last_bytes) : json_null());
    json_object_set_new(o, "unique_bytes", json_null());
    json_object_update(o, result);
    json_decref(result);
    return o;
}

static bool stands_for_job(const struct table *t, const struct group *g)
{
    if (g->rows == 0)
        return false;
    return is_alive(t, g) || (g->last_t - g->first_t >= (t->last_t - t->first_t) / 2 &&
                              g->peak_bytes >= t->groups[0]->peak_bytes / 2);
}

static json_t *tree_json(const struct table *t)
{
    struct verdict_member *members = calloc(t->count + 1, sizeof *members);
    const struct group **of = calloc(t->count + 1, sizeof(const struct group *));
    struct verdict_tree_result tree;
    struct verdict_result result;
    size_t n = 0;
    json_t *o = NULL;
    for (size_t i = 0; members && of && i < t->count; i++) {
        const struct group *g = t->groups[i];
        if (!stands_for_job(t, g))
            continue;
        of[n] = g;
        members[n++] = (struct verdict_member){
            .result = &g->result, .rss_bytes = (double)g->last_bytes, .alive = true};
    }
    if (members && of) {
        size_t figures = jury_tree_result(members, n, NULL, &tree, &result);
        o = jury_result_json(&result,
                             t->has_time && figures < n ? of[figures]->first_t - t->first_t : 0);
        const struct group *g = tree.has_grower && tree.grower < n ? of[tree.grower] : NULL;
        json_t *grower = g ? json_pack("{s:o}", "name", json_text(g->name, g->len)) : NULL;
        if (g && g->pid > 0)
            json_object_set_new(grower, "pid", json_integer(g->pid));
        jury_tree_json_add(o, &tree, grower);
    }
    free(members);
    free(of);
    return o ? o : json_null();
}

static json_t *make_json(struct table *t)
{
    if (t->count == 1 && t->dropped_groups == 0)
        return jury_result_json(&t->groups[0]->result, 0);
    qsort(t->groups, t->count, sizeof(struct group *), by_peak);
    size_t listed = t->count < GROUPS_LISTED ? t->count : GROUPS_LISTED;
    json_t *list = json_array();
    for (size_t i = 0; i < listed; i++)
        json_array_append_new(list, group_json(t, t->groups[i]));
    json_t *doc =
        json_pack("{s:o,s:o,s:[],s:o}", "tree", is_job(t) ? tree_json(t) : json_null(), "processes",
                  list, "gpus", "not_judged", json_u64(t->dropped_groups + t->count - listed));
    if (doc && t->dropped_groups)
        json_object_set_new(doc, "rows_not_judged", json_u64(t->dropped_rows));
    return doc;
}

static int read_and_judge(struct table *t, json_t **ret)
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
    if (t->count == 0 && !group_of(t, "", 0)) /* no row at all: an empty series */
        return err_set(t->err, -ENOMEM, "no memory to judge %s", t->path);
    judge(t);
    *ret = make_json(t);
    return *ret ? 0 : err_set(t->err, -ENOMEM, "no memory to judge %s", t->path);
}

int verdict_csv(const char *path, const struct verdict_csv_options *options, json_t **ret,
                struct err *err)
{
    struct table t = {.options = options, .path = path, .cut_t = HUGE_VAL, .err = err};
    if (options->has_until)
        t.cut_t = options->until_s;
    t.groups = calloc(GROUPS_MAX, sizeof(struct group *));
    t.index = calloc(TABLE_SIZE, sizeof *t.index);
    int r = t.groups && t.index ? read_and_judge(&t, ret)
                                : err_set(err, -ENOMEM, "no memory to judge %s", path);
    for (size_t i = 0; i < t.count; i++)
        group_free(t.groups[i]);
    for (size_t i = 0; i < t.marks_count; i++)
        free(t.marks[i].text);
    free(t.groups);
    free(t.index);
    free(t.marks);
    return r;
}
