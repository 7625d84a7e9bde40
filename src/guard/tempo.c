/* How long steps and checkpoints take, measured from marks. */
#include "guard/tempo.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static double seconds(uint64_t from_ns, uint64_t to_ns)
{
    return to_ns > from_ns ? (double)(to_ns - from_ns) / 1e9 : 0;
}

void tempo_step(struct tempo *t, uint64_t now_ns, int64_t step)
{
    /* every rank may tell of the same step */
    if (t->has_step && step == t->last_step)
        return;
    bool is_measured = t->has_step && step > t->last_step && !t->has_saved;
    if (is_measured) {
        double count = (double)step - (double)t->last_step;
        t->step_s[t->steps % TEMPO_STEPS] = seconds(t->last_step_ns, now_ns) / count;
        t->steps++;
    }
    t->has_step = true;
    t->last_step = step;
    t->last_step_ns = now_ns;
    t->has_saved = t->save_begun_ns != 0;
}

void tempo_save_begin(struct tempo *t, uint64_t now_ns, uint64_t bytes)
{
    if (t->save_begun_ns != 0)
        return;
    t->save_begun_ns = now_ns;
    t->save_start_bytes = t->save_peak_bytes = bytes;
    t->has_saved = true;
}

void tempo_memory(struct tempo *t, uint64_t bytes)
{
    if (t->save_begun_ns != 0 && bytes > t->save_peak_bytes)
        t->save_peak_bytes = bytes;
}

void tempo_save_end(struct tempo *t, uint64_t now_ns)
{
    if (t->save_begun_ns == 0)
        return;
    double took_s = seconds(t->save_begun_ns, now_ns);
    uint64_t rise = t->save_peak_bytes - t->save_start_bytes;
    t->save_s = took_s > t->save_s ? took_s : t->save_s;
    t->save_rise_bytes = rise > t->save_rise_bytes ? rise : t->save_rise_bytes;
    t->saves++;
    t->save_begun_ns = 0;
}

void tempo_save_failed(struct tempo *t)
{
    t->save_begun_ns = 0;
}

static int compare(const void *a, const void *b)
{
    double x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

bool tempo_step_s(const struct tempo *t, double *ret)
{
    if (t->steps < 3)
        return false;
    double sorted[TEMPO_STEPS];
    size_t n = t->steps < TEMPO_STEPS ? t->steps : TEMPO_STEPS;
    memcpy(sorted, t->step_s, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, compare);
    *ret = sorted[n - 1 - n / 10];
    return true;
}

void tempo_segment(struct tempo *t)
{
    t->has_step = false;
    t->has_saved = false;
    t->save_begun_ns = 0;
}
