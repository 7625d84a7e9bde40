/* Computes the resident bytes in malloc's heaps at a moment from page counts, each of which
 * takes seconds. */
#include <math.h>

#include "diagnose/facts.h"

/* Page counts that differ by less than this do not show how the heaps grew relative to the
 * process. */
static const double apart_bytes = 1 << 20;

/* Result of one pass over the unshared pages of a process: the bytes of all of them, and of those
 * in malloc's heaps. The pass takes seconds, so the numbers belong to no exact moment while memory
 * grows, but every page was counted for both at once. */
struct count {
    bool is_known;
    double unique, heap;
};

static struct count count_at(const struct facts_process *p, size_t i)
{
    double unique = p->field[SAMPLE_UNIQUE].v[i];
    double heap = facts_at(&p->field[SAMPLE_HEAP], p->field[SAMPLE_UNIQUE].t_s[i]);
    return (struct count){!isnan(unique) && !isnan(heap), unique, heap};
}

static double anonymous_at(const struct facts_process *p, double t_s)
{
    double file = facts_field_at(p, SAMPLE_FILE, t_s), shmem = facts_field_at(p, SAMPLE_SHMEM, t_s);
    return facts_at(&p->field[SAMPLE_RSS], t_s) - (isnan(file) ? 0 : file) -
           (isnan(shmem) ? 0 : shmem);
}

/* Returns the bytes of file pages that the process has written to, which are unshared pages that
 * the kernel does not count as anonymous. Their number hardly changes. While memory grows, a page
 * count lags behind and shows too few of them, so the largest difference is used. */
static double written_files(const struct facts *f)
{
    const struct facts_process *p = f->main;
    double most = 0;
    for (size_t i = 0; i < p->field[SAMPLE_UNIQUE].count; i++) {
        double t_s = p->field[SAMPLE_UNIQUE].t_s[i];
        if (t_s <= f->now_s && count_at(p, i).is_known)
            most = fmax(most, count_at(p, i).unique - anonymous_at(p, t_s));
    }
    return most;
}

/* Returns the growth of the heaps per byte of growth of the process, 0 to 1. */
static double slope_of(struct count a, struct count b)
{
    if (!a.is_known || fabs(b.unique - a.unique) < apart_bytes)
        return b.unique > 0 ? fmin(1, b.heap / b.unique) : 0;
    return fmin(1, fmax(0, (b.heap - a.heap) / (b.unique - a.unique)));
}

double facts_heap_pages(const struct facts *f, double t_s)
{
    const struct facts_process *p = f->main;
    const struct facts_series *s = &p->field[SAMPLE_UNIQUE];
    struct count before = {0}, last = {0};
    bool is_past = false; /* true once a count after T_S was found */
    for (size_t i = 0; i < s->count && !is_past; i++) {
        struct count one = count_at(p, i);
        if (!one.is_known)
            continue;
        before = last;
        last = one;
        is_past = s->t_s[i] > t_s;
    }
    if (!last.is_known)
        return facts_field_at(p, SAMPLE_HEAP, t_s);
    double own = anonymous_at(p, t_s) + written_files(f);
    return fmin(fmax(0, last.heap + slope_of(before, last) * (own - last.unique)), own);
}
