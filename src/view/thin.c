/* A long series made short enough to draw. */
#include "view/thin.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

enum { FIRST_CAP = 4 };

void thin_init(struct thin *thin, size_t most_points)
{
    assert(most_points >= 4 && "two buckets are needed to make one of them");
    *thin = (struct thin){.most = most_points / 2, .per = 2};
}

void thin_fini(struct thin *thin)
{
    free(thin->buckets);
    *thin = (struct thin){0};
}

static void take(struct thin_bucket *b, const struct thin_point *p)
{
    if (p->v < b->least.v)
        b->least = *p;
    if (p->v > b->greatest.v)
        b->greatest = *p;
}

/* Two buckets become one: half as many, each for twice as long. */
static void halve(struct thin *thin)
{
    size_t n = 0;
    for (size_t i = 0; i < thin->count; i += 2) {
        struct thin_bucket b = thin->buckets[i];
        if (i + 1 < thin->count) {
            take(&b, &thin->buckets[i + 1].least);
            take(&b, &thin->buckets[i + 1].greatest);
        }
        thin->buckets[n++] = b;
    }
    thin->in_last += thin->count % 2 ? 0 : thin->per;
    thin->count = n;
    thin->per *= 2;
}

static bool make_room(struct thin *thin)
{
    if (thin->count == thin->most)
        halve(thin);
    if (thin->count < thin->cap)
        return true;
    size_t cap = thin->cap ? thin->cap * 2 : FIRST_CAP;
    struct thin_bucket *more = reallocarray(thin->buckets, cap, sizeof *more);
    if (!more)
        return false;
    thin->buckets = more;
    thin->cap = cap;
    return true;
}

void thin_add(struct thin *thin, double t, double v)
{
    struct thin_point p = {t, v};
    if (!isfinite(v) || !isfinite(t) || thin->failed)
        return;
    if (thin->count == 0)
        thin->first = p;
    thin->last = p;
    bool is_full = thin->count == 0 || thin->in_last >= thin->per;
    if (is_full && !make_room(thin)) {
        thin->failed = true;
        return;
    }
    /* Making room may have left the last bucket half full. */
    if (thin->count == 0 || thin->in_last >= thin->per) {
        thin->buckets[thin->count++] = (struct thin_bucket){p, p};
        thin->in_last = 1;
        return;
    }
    take(&thin->buckets[thin->count - 1], &p);
    thin->in_last++;
}

size_t thin_room(const struct thin *thin)
{
    return 2 * thin->count + 2;
}

static size_t put(struct thin_point *ret, size_t n, const struct thin_point *p)
{
    if (n && ret[n - 1].t == p->t && ret[n - 1].v == p->v)
        return n;
    ret[n] = *p;
    return n + 1;
}

size_t thin_points(const struct thin *thin, struct thin_point *ret)
{
    size_t n = 0;
    if (thin->count == 0)
        return 0;
    n = put(ret, n, &thin->first);
    for (size_t i = 0; i < thin->count; i++) {
        const struct thin_bucket *b = &thin->buckets[i];
        bool rises = b->least.t <= b->greatest.t;
        n = put(ret, n, rises ? &b->least : &b->greatest);
        n = put(ret, n, rises ? &b->greatest : &b->least);
    }
    return put(ret, n, &thin->last);
}
