/* Series that stay short however long the run: when one is full, every two points become one. */
#include "diagnose/facts_private.h"

#include <math.h>
#include <stdlib.h>

static bool grow(struct thin *t)
{
    size_t cap = t->cap ? t->cap * 2 : 16;
    double *at = reallocarray(t->t_s, cap, sizeof *at);
    if (!at)
        return false;
    t->t_s = at;
    for (size_t i = 0; i < t->fields; i++) {
        at = reallocarray(t->v[i], cap, sizeof *at);
        if (!at)
            return false;
        t->v[i] = at;
    }
    t->cap = cap;
    return true;
}

/* The later of two readings stands for both. */
static double later(double a, double b)
{
    return isnan(b) ? a : b;
}

static void halve(struct thin *t)
{
    for (size_t i = 0; i < t->count / 2; i++) {
        t->t_s[i] = t->t_s[2 * i + 1];
        for (size_t k = 0; k < t->fields; k++)
            t->v[k][i] = later(t->v[k][2 * i], t->v[k][2 * i + 1]);
    }
    t->count /= 2;
    t->each *= 2;
}

void thin_add(struct thin *t, double t_s, const double *v)
{
    if (!t->each)
        t->each = 1;
    if (t->pending == 0) {
        if (t->count == FACTS_POINTS)
            halve(t);
        if (t->count == t->cap && !grow(t))
            return;
        for (size_t k = 0; k < t->fields; k++)
            t->v[k][t->count] = (double)NAN;
        t->count++;
    }
    size_t at = t->count - 1;
    t->t_s[at] = t_s;
    for (size_t k = 0; k < t->fields; k++)
        t->v[k][at] = later(t->v[k][at], v[k]);
    t->pending = (t->pending + 1) % t->each;
}

void thin_clear(struct thin *t)
{
    t->count = 0;
    t->each = 1;
    t->pending = 0;
}

void thin_fini(struct thin *t)
{
    free(t->t_s);
    for (size_t i = 0; i < t->fields; i++)
        free(t->v[i]);
    *t = (struct thin){0};
}

struct facts_series thin_series(const struct thin *t, size_t field)
{
    return (struct facts_series){.t_s = t->t_s, .v = t->v[field], .count = t->count};
}

/* ---- asking a series ---- */

double facts_at(const struct facts_series *s, double t_s)
{
    double found = (double)NAN;
    for (size_t i = 0; i < s->count; i++) {
        if (isnan(s->v[i]))
            continue;
        if (s->t_s[i] > t_s)
            return isnan(found) ? s->v[i] : found;
        found = s->v[i];
    }
    return found;
}

/* Its place; the number of readings where there is none. */
static size_t nearest(const struct facts_series *s, double t_s)
{
    size_t found = s->count;
    for (size_t i = 0; i < s->count; i++)
        if (!isnan(s->v[i]) &&
            (found == s->count || fabs(s->t_s[i] - t_s) < fabs(s->t_s[found] - t_s)))
            found = i;
    return found;
}

double facts_near(const struct facts_series *s, double t_s)
{
    size_t at = nearest(s, t_s);
    return at < s->count ? s->v[at] : (double)NAN;
}

double facts_near_s(const struct facts_series *s, double t_s)
{
    size_t at = nearest(s, t_s);
    return at < s->count ? s->t_s[at] : (double)NAN;
}

double facts_most(const struct facts_series *s, double from_s, double to_s)
{
    double most = (double)NAN;
    for (size_t i = 0; i < s->count; i++)
        if (s->t_s[i] >= from_s && s->t_s[i] <= to_s)
            most = fmax(most, s->v[i]);
    return most;
}

double facts_least(const struct facts_series *s, double from_s, double to_s)
{
    double least = (double)NAN;
    for (size_t i = 0; i < s->count; i++)
        if (s->t_s[i] >= from_s && s->t_s[i] <= to_s)
            least = fmin(least, s->v[i]);
    return least;
}

double facts_growth(const struct facts_series *s, double from_s, double to_s)
{
    return facts_at(s, to_s) - facts_at(s, from_s);
}
