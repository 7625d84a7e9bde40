/* Readings held back, and whether they counted. */
#include "verdict/tail.h"

static const double EXIT_FALL = 0.05; /* exits of the zoo's programs gave back 6 to 53 % */

static void feed_oldest(struct tail *tail, struct verdict_series *v)
{
    verdict_update(v, tail->held[tail->first].t_ns, tail->held[tail->first].bytes);
    tail->first = (tail->first + 1) % TAIL_HELD;
    tail->count--;
}

static uint32_t place(const struct tail *tail, uint32_t i)
{
    return (tail->first + i) % TAIL_HELD;
}

void tail_update(struct tail *tail, struct verdict_series *v, int64_t t_ns, uint64_t bytes)
{
    /* In double: a clock may have been set anywhere. */
    while (tail->count && (tail->count == TAIL_HELD ||
                           (double)t_ns - (double)tail->held[tail->first].t_ns >= TAIL_S * 1e9))
        feed_oldest(tail, v);
    if (tail->count && t_ns < tail->held[place(tail, tail->count - 1)].t_ns)
        tail_release(tail, v); /* backwards: the series knows what to do */
    uint32_t at = place(tail, tail->count++);
    tail->held[at].t_ns = t_ns;
    tail->held[at].bytes = bytes;
}

void tail_release(struct tail *tail, struct verdict_series *v)
{
    while (tail->count)
        feed_oldest(tail, v);
}

void tail_drop(struct tail *tail, struct verdict_series *v)
{
    while (tail->count > 0 && tail->count > v->samples)
        feed_oldest(tail, v);
    tail->count = 0;
}

/* How many come before a fall that lasts to the end: the first place from which on all lie below
 * all before it, the last by EXIT_FALL. */
static uint32_t before_fall(const struct tail *tail)
{
    uint64_t lowest = UINT64_MAX;

    for (uint32_t k = 1; k < tail->count; k++) {
        uint64_t bytes = tail->held[place(tail, k - 1)].bytes, highest = 0;

        lowest = bytes < lowest ? bytes : lowest;
        for (uint32_t i = k; i < tail->count; i++) {
            bytes = tail->held[place(tail, i)].bytes;
            highest = bytes > highest ? bytes : highest;
        }
        if (highest < lowest && (double)bytes < (1 - EXIT_FALL) * (double)lowest)
            return k;
    }
    return tail->count;
}

void tail_end(struct tail *tail, struct verdict_series *v)
{
    for (uint32_t keep = before_fall(tail); keep > 0; keep--)
        feed_oldest(tail, v);
    tail_drop(tail, v);
}
