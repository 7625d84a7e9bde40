/* Keeps the durations of the newest steps in a ring, and computes their median and 90th
 * percentile. */
#include "mark/step_times.h"

#include <stdlib.h>
#include <string.h>

void step_times_mark(struct step_times *t, uint64_t now_ns, int64_t step)
{
    if (t->has_step && step == t->last_step)
        return;
    if (t->has_step && step > t->last_step && !t->is_interrupted) {
        uint64_t took_ns = now_ns > t->last_ns ? now_ns - t->last_ns : 0;
        t->ns[t->count++ % STEP_TIMES] = took_ns / ((uint64_t)step - (uint64_t)t->last_step);
    }
    t->has_step = true;
    t->last_step = step;
    t->last_ns = now_ns;
    t->is_interrupted = false;
}

static int compare_ns(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static size_t sort_newest(const struct step_times *t, uint64_t ret[STEP_TIMES])
{
    size_t n = t->count < STEP_TIMES ? t->count : STEP_TIMES;
    memcpy(ret, t->ns, n * sizeof *ret);
    qsort(ret, n, sizeof *ret, compare_ns);
    return n;
}

bool step_times_median_ns(const struct step_times *t, uint64_t *ret)
{
    uint64_t sorted[STEP_TIMES];
    size_t n = sort_newest(t, sorted);
    if (n)
        *ret = n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
    return n > 0;
}

bool step_times_slow_ns(const struct step_times *t, uint64_t *ret)
{
    uint64_t sorted[STEP_TIMES];
    size_t n = sort_newest(t, sorted);
    if (n >= 3)
        *ret = sorted[n - 1 - n / 10];
    return n >= 3;
}
