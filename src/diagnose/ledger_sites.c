/* Computes the ledger's entries for call sites: their sampled bytes, scaled to the resident
 * part. */
#include <math.h>
#include <stdlib.h>

#include "diagnose/ledger_private.h"

static const double z95 = 1.96;

double ledger_row_sampled(const struct facts *f, size_t i)
{
    return f->heap.growth.rows[i].live_bytes - f->heap.sites[i].start_bytes;
}

bool ledger_is_shared_row(const struct ledger *l, size_t i)
{
    return i < GROWTH_ROWS && l->is_shared[i];
}

double ledger_shared_rows(const struct facts *f, const struct ledger *l, bool is_start)
{
    double sum = 0;
    for (size_t i = 0; i < f->heap.growth.count; i++)
        if (ledger_is_shared_row(l, i))
            sum += is_start ? f->heap.sites[i].start_bytes : f->heap.growth.rows[i].live_bytes;
    return sum;
}

/* Returns the live bytes of row I at one of the moments, scaled so that all rows add up to the
 * heap. */
static double row_start(const struct facts *f, const struct ledger_scale *s, size_t i)
{
    return s->start * f->heap.sites[i].start_bytes;
}

static double row_now(const struct facts *f, const struct ledger_scale *s, size_t i)
{
    double had = f->heap.sites[i].start_bytes, has = f->heap.growth.rows[i].live_bytes;
    return s->now * (has > had ? s->start * had + s->growth * (has - had) : s->start * has);
}

/* Returns the factors that make the rows add up to the heap. START scales the memory of the start,
 * whether or not it is still live. GROWTH scales growth, by at most 2. If the rows then still
 * exceed the heap, NOW scales all of them down. */
static struct ledger_scale scale_rows(const struct facts *f, const struct ledger *l, double had,
                                      double has)
{
    const struct growth_row *rows = f->heap.growth.rows;
    double sampled = f->heap.start.live - ledger_shared_rows(f, l, true), stays = 0, grown = 0;
    struct ledger_scale s = {sampled > 0 ? had / sampled : 1, 1, 1};
    for (size_t i = 0; i < f->heap.growth.count; i++) {
        if (ledger_is_shared_row(l, i))
            continue;
        stays += fmin(rows[i].live_bytes, f->heap.sites[i].start_bytes);
        grown += positive(rows[i].live_bytes - f->heap.sites[i].start_bytes);
    }
    if (grown > 0)
        s.growth = fmin(2, positive((has - s.start * stays) / grown));
    double all = s.start * stays + s.growth * grown;
    if (all > has)
        s.now = has / all;
    return s;
}

void ledger_add(struct ledger *l, enum ledger_kind kind, double start, double now, double low,
                double high)
{
    l->entries[l->count++] = (struct ledger_entry){.kind = kind,
                                                   .start_bytes = start,
                                                   .now_bytes = now,
                                                   .low_bytes = fmin(low, now),
                                                   .high_bytes = fmax(high, now),
                                                   .growth_bytes = now - start};
}

struct ranked {
    size_t row;
    double start, now;
};

static int by_change(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    double left = fabs(x->now - x->start), right = fabs(y->now - y->start);
    if (left != right)
        return left < right ? 1 : -1;
    return (x->now < y->now) - (x->now > y->now);
}

void ledger_add_sites(const struct facts *f, double rest_start, double rest_now, struct ledger *l)
{
    const struct facts_heap *h = &f->heap;
    struct ranked *list = calloc(h->growth.count ? h->growth.count : 1, sizeof *list);
    double half = z95 * h->sigma;
    l->scale = scale_rows(f, l, rest_start, rest_now);
    for (size_t i = 0; list && i < h->growth.count; i++)
        list[i] = ledger_is_shared_row(l, i)
                      ? (struct ranked){.row = i}
                      : (struct ranked){i, row_start(f, &l->scale, i), row_now(f, &l->scale, i)};
    if (list)
        qsort(list, h->growth.count, sizeof *list, by_change);
    for (size_t i = 0; list && i < h->growth.count && i < LEDGER_SITES; i++) {
        const struct growth_row *row = &h->growth.rows[list[i].row];
        double at_start = fmin(list[i].start, rest_start), at_now = fmin(list[i].now, rest_now);
        if (at_start + at_now <= 0)
            continue;
        double scale = row->live_bytes > 0 ? list[i].now / row->live_bytes : 1;
        ledger_add(l, LEDGER_HEAP_SITE, at_start, at_now, row->live_low * scale,
                   fmin(row->live_high * scale, l->rss_now_bytes));
        l->entries[l->count - 1].site = row;
        rest_start -= at_start;
        rest_now -= at_now;
    }
    free(list);
    ledger_add(l, LEDGER_HEAP_OTHER, rest_start, rest_now, positive(rest_now - half),
               fmin(rest_now + half, l->rss_now_bytes));
}

double ledger_row_growth(const struct facts *f, const struct ledger *l, size_t i)
{
    double shared = ledger_growth(l, LEDGER_PINNED) + ledger_growth(l, LEDGER_SHARED);
    if (ledger_is_shared_row(l, i))
        return fmin(ledger_row_sampled(f, i), shared);
    return row_now(f, &l->scale, i) - row_start(f, &l->scale, i);
}
