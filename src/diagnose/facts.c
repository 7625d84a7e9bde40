/* Gathers the facts of a run. */
#include "diagnose/facts.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/err.h"
#include "diagnose/facts_private.h"
#include "judge/recorded.h"
#include "trace/census.h"

enum { EXIT_S = 3 };

/* Fraction of a process's life that is treated as start-up if there are no marks. */
static const double warm_share = 0.1;
/* Growth is also treated as start-up if memory reached settled_share of its final value within
 * early_share of the process's life. */
static const double settled_share = 0.97, early_share = 0.4;
static const double library_bytes = 1 << 20;
/* A process whose memory fell below this fraction of its recent maximum is exiting. */
static const double exit_share = 0.95;

/* ---- marks ---- */

static void take_mark(struct facts *f, const struct verdict_mark *m, double t_s)
{
    int64_t step = m->has_step && m->step <= INT64_MAX ? (int64_t)m->step : -1;
    /* each mark repeats the settings from earlier marks, such as the batch size */
    f->steps_per_epoch = m->steps_per_epoch;
    f->max_steps = m->max_steps;
    f->examples = m->examples;
    f->batch = m->batch;
    if (m->kind == VERDICT_MARK_SUBSTEP) {
        f->substeps++;
        return;
    }
    f->marks[f->n_marks++] = (struct facts_mark){m->kind, t_s, step};
    if (m->kind != VERDICT_MARK_STEP || step < 0)
        return;
    if (!f->has_steps)
        f->first_step = step;
    f->has_steps = true;
    f->last_step = step;
}

static int facts_take_marks(struct facts *f, const struct marks *marks, struct err *err)
{
    uint64_t since =
        f->main && f->main->born_s > 0 ? f->start_ns + (uint64_t)(f->main->born_s * 1e9) : 0;
    int r =
        marks_of(marks, f->main ? f->main->id.pid : 0, since, &f->all_marks, &f->n_all_marks, err);
    if (r < 0)
        return r;
    f->kept = marks->kept;
    f->cleanup = marks->cleanup;
    f->marks = calloc(f->n_all_marks + 1, sizeof *f->marks);
    if (!f->marks)
        return err_set(err, -ENOMEM, "out of memory");
    for (size_t i = 0; i < f->n_all_marks; i++)
        take_mark(f, &f->all_marks[i].mark,
                  ((double)f->all_marks[i].t_ns - (double)f->start_ns) / 1e9);
    if (!f->steps_per_epoch && f->examples && f->batch)
        f->steps_per_epoch = f->examples / f->batch + (f->examples % f->batch != 0);
    return 0;
}

/* ---- the two moments that are compared ---- */

static double first_of(const struct facts *f, enum verdict_mark_kind kind)
{
    for (size_t i = 0; i < f->n_marks; i++)
        if (f->marks[i].kind == kind)
            return f->marks[i].t_s;
    return (double)NAN;
}

static double last_of(const struct facts *f, enum verdict_mark_kind kind)
{
    for (size_t i = f->n_marks; i-- > 0;)
        if (f->marks[i].kind == kind)
            return f->marks[i].t_s;
    return (double)NAN;
}

/* Returns the time of the last reading up to END_S that precedes the fall of memory at the
 * process's exit. */
static double before_exit(const struct facts_series *s, double end_s)
{
    double most = facts_max(s, end_s - EXIT_S, end_s), found = end_s;
    for (size_t i = 0; i < s->count && s->t_s[i] <= end_s; i++)
        if (s->v[i] >= exit_share * most)
            found = s->t_s[i];
    return found;
}

/* Returns the time of the first reading of S at or after T_S, or T_S if there is none. */
static double reading_after(const struct facts_series *s, double t_s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->t_s[i] >= t_s)
            return s->t_s[i];
    return t_s;
}

bool facts_has_ended(enum verdict_word word)
{
    return verdict_word_leak(word) == VERDICT_LEAK_NO;
}

static double resident_without_files(const struct facts_process *p, double t_s)
{
    double file = facts_field_at(p, SAMPLE_FILE, t_s);
    return facts_at(&p->field[SAMPLE_RSS], t_s) - (isnan(file) ? 0 : file);
}

/* Returns the time at which the program had loaded its libraries, at most UNTIL_S. Loading a
 * library adds both anonymous memory and file pages; mapping data adds only file pages. */
static double loaded_s(const struct facts_process *p, double from_s, double until_s)
{
    const struct facts_series *file = &p->field[SAMPLE_FILE];
    double last = (double)NAN, other = (double)NAN, found = from_s;
    for (size_t i = 0; i < file->count && file->t_s[i] <= until_s; i++) {
        double now = resident_without_files(p, file->t_s[i]);
        if (file->v[i] - last > library_bytes && now - other > library_bytes)
            found = fmax(found, file->t_s[i]);
        last = file->v[i];
        other = now;
    }
    return found;
}

/* Returns the end of start-up for a program without marks. This is the time at which growth ended
 * or, if growth did not end early, the time at which the libraries were loaded. */
static double settled_s(const struct facts_process *p, double from_s, double to_s,
                        double *ret_loaded_s)
{
    const struct facts_series *rss = &p->field[SAMPLE_RSS];
    double until_s = rss->t_s[0] + early_share * (to_s - rss->t_s[0]);
    double loaded = loaded_s(p, from_s, until_s), last = resident_without_files(p, to_s),
           found = loaded;
    *ret_loaded_s = loaded;
    if (!p->verdict.is_known || !facts_has_ended(p->verdict.word))
        return loaded;
    for (size_t i = 0; i + 1 < rss->count && rss->t_s[i] < to_s; i++)
        if (rss->t_s[i] >= loaded && resident_without_files(p, rss->t_s[i]) < settled_share * last)
            found = rss->t_s[i + 1];
    return found <= until_s ? found : loaded;
}

/* Chooses the two moments that are compared. The first one is the end of the first step, because
 * the first step allocates gradients and optimizer state. */
static void facts_choose_moments(struct facts *f)
{
    const struct facts_process *p = f->main;
    double step = first_of(f, VERDICT_MARK_STEP), begin = first_of(f, VERDICT_MARK_BEGIN);
    double end = last_of(f, VERDICT_MARK_END);
    if (!p || p->field[SAMPLE_RSS].count == 0)
        return;
    const struct facts_series *rss = &p->field[SAMPLE_RSS];
    double first_s = rss->t_s[0], last_s = rss->t_s[rss->count - 1];
    f->start_s = !isnan(step)    ? step
                 : !isnan(begin) ? begin
                                 : first_s + warm_share * (last_s - first_s);
    f->begun_s = f->loaded_s = f->start_s;
    f->start_s = fmin(reading_after(rss, fmax(f->start_s, first_s)), last_s);
    f->now_s = isinf(p->died_s) && !f->is_table ? last_s : before_exit(rss, last_s);
    if (!isnan(end) && end > f->start_s)
        f->now_s = fmin(f->now_s, end);
    if (isnan(step) && isnan(begin))
        f->begun_s = f->start_s = settled_s(p, f->start_s, f->now_s, &f->loaded_s);
    f->now_s = fmax(f->now_s, f->start_s);
}

/* ---- censuses ---- */

/* Reads a census of the known format. Returns NULL on error. */
static json_t *facts_census(const struct census_file *file)
{
    json_t *doc = census_file_read(file->path, NULL);
    if (doc && json_integer_value(json_object_get(doc, "format")) == 1)
        return doc;
    json_decref(doc);
    return NULL;
}

static void facts_read_census(const char *folder, struct facts *f)
{
    struct buf path = {0};
    struct census_files files = {0};
    buf_printf(&path, "%s/census", folder);
    if (f->main)
        census_files_list(buf_str(&path), f->main->id.pid, &files);
    json_t *first = files.count ? facts_census(&files.v[0]) : NULL;
    json_t *last = files.count > 1 ? facts_census(&files.v[files.count - 1]) : json_incref(first);
    buf_fini(&path);
    census_files_fini(&files);
    if (first && last) {
        f->census.first = first;
        f->census.last = last;
        return;
    }
    json_decref(first);
    json_decref(last);
}

/* ---- all facts ---- */

int facts_new(const struct recorded *recorded, struct facts **ret, struct err *err)
{
    struct facts *f = calloc(1, sizeof *f);
    bool is_earlier = false;
    int r = f ? facts_take_run(f, recorded, &is_earlier) : -ENOMEM;
    if (r < 0) {
        facts_free(f);
        return err_set(err, r, "out of memory");
    }
    f->has_run_json = recorded->has_outcome;
    f->is_running = outcome_is_running(&recorded->outcome);
    facts_take_verdicts(f, &recorded->verdicts, is_earlier);
    r = facts_take_marks(f, &recorded->marks, err);
    if (r < 0) {
        facts_free(f);
        return r;
    }
    facts_choose_moments(f);
    facts_read_heap(recorded, f);
    facts_read_gpu(recorded, f);
    facts_read_census(recorded->path, f);
    *ret = f;
    return 0;
}

void facts_free(struct facts *f)
{
    if (!f)
        return;
    json_decref(f->census.first);
    json_decref(f->census.last);
    free(f->processes);
    free(f->figures);
    free(f->marks);
    free(f->all_marks);
    growth_fini(&f->gpu_heap.growth);
    names_free(f->gpu_heap.names);
    profile_free(f->gpu_heap.profile);
    facts_heap_fini(&f->heap);
    for (struct facts_points *next, *p = f->points; p; p = next) {
        next = p->next;
        free(p);
    }
    free(f);
}
