/* A long series made short enough to draw. */
#include "present/curve.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { FIRST_CAP = 4 };

void curve_init(struct curve *curve, size_t most_points)
{
    assert(most_points >= 4 && "two buckets are needed to make one of them");
    *curve = (struct curve){.most = most_points / 2, .per = 2};
}

void curve_fini(struct curve *curve)
{
    free(curve->buckets);
    *curve = (struct curve){0};
}

static void take(struct curve_bucket *b, const struct curve_point *p)
{
    if (p->v < b->least.v)
        b->least = *p;
    if (p->v > b->greatest.v)
        b->greatest = *p;
}

/* Two buckets become one: half as many, each for twice as long. */
static void halve(struct curve *curve)
{
    size_t n = 0;
    for (size_t i = 0; i < curve->count; i += 2) {
        struct curve_bucket b = curve->buckets[i];
        if (i + 1 < curve->count) {
            take(&b, &curve->buckets[i + 1].least);
            take(&b, &curve->buckets[i + 1].greatest);
        }
        curve->buckets[n++] = b;
    }
    curve->in_last += curve->count % 2 ? 0 : curve->per;
    curve->count = n;
    curve->per *= 2;
}

static bool make_room(struct curve *curve)
{
    if (curve->count == curve->most)
        halve(curve);
    if (curve->count < curve->cap)
        return true;
    size_t cap = curve->cap ? curve->cap * 2 : FIRST_CAP;
    struct curve_bucket *more = reallocarray(curve->buckets, cap, sizeof *more);
    if (!more)
        return false;
    curve->buckets = more;
    curve->cap = cap;
    return true;
}

void curve_add(struct curve *curve, double t, double v)
{
    struct curve_point p = {t, v};
    if (!isfinite(v) || !isfinite(t) || curve->failed)
        return;
    if (curve->count == 0)
        curve->first = p;
    curve->last = p;
    bool is_full = curve->count == 0 || curve->in_last >= curve->per;
    if (is_full && !make_room(curve)) {
        curve->failed = true;
        return;
    }
    /* Making room may have left the last bucket half full. */
    if (curve->count == 0 || curve->in_last >= curve->per) {
        curve->buckets[curve->count++] = (struct curve_bucket){p, p};
        curve->in_last = 1;
        return;
    }
    take(&curve->buckets[curve->count - 1], &p);
    curve->in_last++;
}

size_t curve_room(const struct curve *curve)
{
    return 2 * curve->count + 2;
}

static size_t put(struct curve_point *ret, size_t n, const struct curve_point *p)
{
    if (n && ret[n - 1].t == p->t && ret[n - 1].v == p->v)
        return n;
    ret[n] = *p;
    return n + 1;
}

size_t curve_points(const struct curve *curve, struct curve_point *ret)
{
    size_t n = 0;
    if (curve->count == 0)
        return 0;
    n = put(ret, n, &curve->first);
    for (size_t i = 0; i < curve->count; i++) {
        const struct curve_bucket *b = &curve->buckets[i];
        bool rises = b->least.t <= b->greatest.t;
        n = put(ret, n, rises ? &b->least : &b->greatest);
        n = put(ret, n, rises ? &b->greatest : &b->least);
    }
    return put(ret, n, &curve->last);
}
