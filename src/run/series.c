/* A series of bounded size, which halves its time resolution when it is full. */
#include "run/series.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

#include "base/array.h"
#include "base/clock.h"

enum { FIRST_CAP = 4 };

void series_init(struct series *s, uint32_t most, uint64_t width_ns, uint64_t origin_ns)
{
    assert(most >= 2 && width_ns > 0 && "a series needs at least two buckets");
    *s = (struct series){.most = most, .width_ns = width_ns, .origin_ns = origin_ns};
}

void series_fini(struct series *s)
{
    free(s->buckets);
    *s = (struct series){0};
}

static uint64_t bucket_number(const struct series *s, uint64_t t_ns)
{
    return t_ns > s->origin_ns ? (t_ns - s->origin_ns) / s->width_ns : 0;
}

static void bucket_merge(struct series_bucket *into, const struct series_bucket *later)
{
    if (later->min.v < into->min.v)
        into->min = later->min;
    if (later->max.v > into->max.v)
        into->max = later->max;
    into->last = later->last;
}

static void series_double_width(struct series *s)
{
    uint32_t n = 0;
    s->width_ns = s->width_ns > UINT64_MAX / 2 ? UINT64_MAX : s->width_ns * 2;
    for (uint32_t i = 0; i < s->count; i++) {
        if (n && bucket_number(s, s->buckets[n - 1].last.t_ns) ==
                     bucket_number(s, s->buckets[i].last.t_ns))
            bucket_merge(&s->buckets[n - 1], &s->buckets[i]);
        else
            s->buckets[n++] = s->buckets[i];
    }
    s->count = n;
}

static int series_make_room(struct series *s)
{
    if (s->count < s->cap)
        return 0;
    uint32_t cap = s->cap ? s->cap * 2 : FIRST_CAP;
    if (cap > s->most)
        cap = s->most;
    struct series_bucket *more = reallocarray(s->buckets, cap, sizeof *more);
    if (!more)
        return -ENOMEM;
    s->buckets = more;
    s->cap = cap;
    return 0;
}

int series_add(struct series *s, uint64_t t_ns, uint64_t v)
{
    struct series_bucket *last = s->count ? &s->buckets[s->count - 1] : NULL;
    if (last && t_ns < last->last.t_ns)
        t_ns = last->last.t_ns;
    const struct series_point p = {t_ns, v};
    const struct series_bucket one = {p, p, p};
    while (last && s->count == s->most &&
           bucket_number(s, last->last.t_ns) != bucket_number(s, t_ns)) {
        series_double_width(s);
        last = &s->buckets[s->count - 1];
    }
    if (last && bucket_number(s, last->last.t_ns) == bucket_number(s, t_ns)) {
        bucket_merge(last, &one);
    } else {
        if (series_make_room(s) < 0 || !s->buckets)
            return -ENOMEM;
        s->buckets[s->count++] = one;
    }
    if (s->readings++ == 0)
        s->first = p;
    if (t_ns - s->first.t_ns < NS_PER_S)
        s->start = v;
    s->sum += (double)v;
    return 0;
}

/* ---- reading ---- */

uint64_t series_mean(const struct series *s)
{
    return s && s->readings ? (uint64_t)(s->sum / (double)s->readings) : 0;
}

bool series_last(const struct series *s, struct series_point *ret)
{
    if (!s || !s->count)
        return false;
    *ret = s->buckets[s->count - 1].last;
    return true;
}

static size_t point_put(struct series_point *ret, size_t n, const struct series_point *p)
{
    if (n && ret[n - 1].t_ns == p->t_ns && ret[n - 1].v == p->v)
        return n;
    ret[n] = *p;
    return n + 1;
}

/* Writes the readings of bucket I in order of time. The first bucket begins with the first reading
 * of the series. */
static size_t bucket_points(const struct series *s, uint32_t i, bool with_last,
                            struct series_point *ret)
{
    const struct series_bucket *b = &s->buckets[i];
    const bool rises = b->min.t_ns <= b->max.t_ns;
    size_t n = i == 0 ? point_put(ret, 0, &s->first) : 0;
    n = point_put(ret, n, rises ? &b->min : &b->max);
    n = point_put(ret, n, rises ? &b->max : &b->min);
    return with_last ? point_put(ret, n, &b->last) : n;
}

/* Returns the index of the first bucket whose last reading is at or after T_NS, or S->count if
 * there is none. */
static uint32_t bucket_at(const struct series *s, uint64_t t_ns)
{
    return (uint32_t)ARRAY_SEARCH(i, s->count, s->buckets[i].last.t_ns < t_ns);
}

bool series_after(const struct series *s, uint64_t t_ns, struct series_point *ret)
{
    struct series_point p[4];
    uint32_t i = s ? bucket_at(s, t_ns) : 0;
    if (!s || i == s->count)
        return false;
    bucket_points(s, i, true, p);
    *ret = p[0];
    /* this loop ends, because the last reading of the bucket is at or after T_NS */
    for (size_t k = 1; ret->t_ns < t_ns; k++)
        *ret = p[k];
    return true;
}

static bool series_extreme(const struct series *s, uint64_t from_ns, uint64_t to_ns, bool is_max,
                           struct series_point *ret)
{
    struct series_point p[4];
    bool has_any = false;
    for (uint32_t i = s ? bucket_at(s, from_ns) : 0; s && i < s->count; i++) {
        size_t n = bucket_points(s, i, true, p);
        if (p[0].t_ns > to_ns)
            break;
        for (size_t k = 0; k < n; k++) {
            if (p[k].t_ns < from_ns || p[k].t_ns > to_ns ||
                (has_any && (is_max ? p[k].v <= ret->v : p[k].v >= ret->v)))
                continue;
            *ret = p[k];
            has_any = true;
        }
    }
    return has_any;
}

bool series_min(const struct series *s, uint64_t from_ns, uint64_t to_ns, struct series_point *ret)
{
    return series_extreme(s, from_ns, to_ns, false, ret);
}

bool series_max(const struct series *s, uint64_t from_ns, uint64_t to_ns, struct series_point *ret)
{
    return series_extreme(s, from_ns, to_ns, true, ret);
}

size_t series_room(const struct series *s)
{
    return s ? 2 * (size_t)s->count + 2 : 0;
}

size_t series_points(const struct series *s, struct series_point *ret)
{
    size_t n = 0;
    for (uint32_t i = 0; s && i < s->count; i++)
        n += bucket_points(s, i, i + 1 == s->count, ret + n);
    return n;
}

size_t series_newest(const struct series *s, size_t n, uint64_t *ret)
{
    size_t count = s ? s->count : 0, kept = count < n ? count : n;
    for (size_t i = 0; i < kept; i++)
        ret[i] = s->buckets[count - kept + i].max.v;
    return kept;
}
