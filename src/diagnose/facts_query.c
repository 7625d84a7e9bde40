/* Answers queries about the facts: readings of a series, the breakdown of resident memory between
 * two readings, and the resident pages of malloc's heaps. */
#include <math.h>
#include <string.h>

#include "base/array.h"
#include "diagnose/facts.h"

/* Readings of resident memory that differ by less than this are treated as equal. */
static const double alike_bytes = 1 << 20;
/* The growth of the heaps is compared with that of the process only if the page counts differ by at
 * least this. */
static const double apart_bytes = 1 << 20;

/* ---- one series ---- */

/* Returns the number of readings at or before T_S. */
static size_t readings_until(const struct facts_series *s, double t_s)
{
    return ARRAY_SEARCH(i, s->count, s->t_s[i] <= t_s);
}

double facts_at(const struct facts_series *s, double t_s)
{
    size_t after = readings_until(s, t_s);
    return s->count ? s->v[after ? after - 1 : 0] : (double)NAN;
}

/* Returns the index of the reading nearest to T_S, or 0 if there is none. */
static size_t nearest(const struct facts_series *s, double t_s)
{
    size_t after = readings_until(s, t_s);
    bool is_before = after && (after == s->count || t_s - s->t_s[after - 1] <= s->t_s[after] - t_s);
    return is_before ? after - 1 : after;
}

double facts_near(const struct facts_series *s, double t_s)
{
    return s->count ? s->v[nearest(s, t_s)] : (double)NAN;
}

double facts_near_s(const struct facts_series *s, double t_s)
{
    return s->count ? s->t_s[nearest(s, t_s)] : (double)NAN;
}

static double extreme(const struct facts_series *s, double from_s, double to_s,
                      double (*choose)(double, double))
{
    double found = (double)NAN;
    for (size_t i = 0; i < s->count; i++)
        if (s->t_s[i] >= from_s && s->t_s[i] <= to_s)
            found = choose(found, s->v[i]);
    return found;
}

double facts_max(const struct facts_series *s, double from_s, double to_s)
{
    return extreme(s, from_s, to_s, fmax);
}

double facts_min(const struct facts_series *s, double from_s, double to_s)
{
    return extreme(s, from_s, to_s, fmin);
}

double facts_growth(const struct facts_series *s, double from_s, double to_s)
{
    return facts_at(s, to_s) - facts_at(s, from_s);
}

double facts_number(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

const struct facts_figure *facts_figure(const struct facts *f, const char *name)
{
    for (size_t i = 0; i < f->n_figures; i++)
        if (strcmp(f->figures[i].name, name) == 0 &&
            (!f->main || f->figures[i].pid == 0 || f->figures[i].pid == f->main->id.pid))
            return &f->figures[i];
    return NULL;
}

/* ---- the breakdown of resident memory, which is read rarely ---- */

double facts_field_s(const struct facts_process *p, enum sample_process_field field, double t_s)
{
    const struct facts_series *s = &p->field[field];
    return s->count ? fmin(fmax(t_s, s->t_s[0]), s->t_s[s->count - 1]) : (double)NAN;
}

/* Returns the fraction, 0 to 1, of the change of resident memory from FROM_S to TO_S that had
 * happened by T_S. If memory did not change, returns 0 if T_S is nearer to FROM_S, else 1. */
static double fraction_of_change(const struct facts_series *rss, double from_s, double to_s,
                                 double t_s)
{
    double from = facts_at(rss, from_s), whole = facts_at(rss, to_s) - from;
    if (fabs(whole) < alike_bytes)
        return t_s - from_s <= to_s - t_s ? 0 : 1;
    return fmin(1, fmax(0, (facts_at(rss, t_s) - from) / whole));
}

double facts_field_at(const struct facts_process *p, enum sample_process_field field, double t_s)
{
    const struct facts_series *s = &p->field[field];
    size_t after = readings_until(s, t_s);
    if (field == SAMPLE_RSS || after == 0 || after == s->count)
        return facts_at(s, t_s);
    double part = fraction_of_change(&p->field[SAMPLE_RSS], s->t_s[after - 1], s->t_s[after], t_s);
    return s->v[after - 1] + part * (s->v[after] - s->v[after - 1]);
}

/* ---- malloc's heaps ---- */

/* One count of a process's unshared pages: the bytes of all of them, and of those in malloc's
 * heaps. Counting takes seconds. If memory grows meanwhile, the count belongs to no exact time, but
 * its two values still match, because they are counted together. */
struct page_count {
    double unique, heap;
};

static struct page_count count_at(const struct facts_process *p, size_t i)
{
    const struct facts_series *unique = &p->field[SAMPLE_UNIQUE];
    return (struct page_count){unique->v[i], facts_at(&p->field[SAMPLE_HEAP], unique->t_s[i])};
}

static double anonymous_at(const struct facts_process *p, double t_s)
{
    double file = facts_field_at(p, SAMPLE_FILE, t_s), shmem = facts_field_at(p, SAMPLE_SHMEM, t_s);
    return facts_at(&p->field[SAMPLE_RSS], t_s) - (isnan(file) ? 0 : file) -
           (isnan(shmem) ? 0 : shmem);
}

/* Returns the bytes of file pages that the process has written to. The kernel does not count these
 * pages as anonymous, although they are unshared, so they are the difference between unshared and
 * anonymous memory. Their number hardly changes. A page count made while memory grows is outdated
 * and makes the difference too small, so the largest difference is used. */
static double written_files(const struct facts *f)
{
    const struct facts_series *unique = &f->main->field[SAMPLE_UNIQUE];
    double most = 0;
    for (size_t i = 0; i < unique->count && unique->t_s[i] <= f->now_s; i++)
        most = fmax(most, unique->v[i] - anonymous_at(f->main, unique->t_s[i]));
    return most;
}

/* Returns how much malloc's heaps grow per byte by which the process grows, from 0 to 1. FROM and
 * TO are consecutive page counts; FROM is NULL if TO is the first one. */
static double heap_slope(const struct page_count *from, const struct page_count *to)
{
    if (!from || fabs(to->unique - from->unique) < apart_bytes)
        return to->unique > 0 ? fmin(1, to->heap / to->unique) : 0;
    return fmin(1, fmax(0, (to->heap - from->heap) / (to->unique - from->unique)));
}

double facts_heap_pages(const struct facts *f, double t_s)
{
    const struct facts_process *p = f->main;
    const struct facts_series *s = &p->field[SAMPLE_UNIQUE];
    if (!s->count || !p->field[SAMPLE_HEAP].count)
        return facts_field_at(p, SAMPLE_HEAP, t_s);
    /* index of the first count after T_S, or else of the last count */
    size_t at = readings_until(s, t_s);
    at = at < s->count ? at : s->count - 1;
    struct page_count last = count_at(p, at), before = count_at(p, at ? at - 1 : 0);
    double own = anonymous_at(p, t_s) + written_files(f);
    double change = heap_slope(at ? &before : NULL, &last) * (own - last.unique);
    return fmin(fmax(0, last.heap + change), own);
}
