/* Readings held back, and whether they counted. */
#include "verdict/tail.h"

static const double EXIT_FALL = 0.05; /* of the highest held; exits were seen to give back 6 to 53 % */

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
    while (tail->count &&
           (tail->count == TAIL_HELD || (double)t_ns - (double)tail->held[tail->first].t_ns >=
                                            TAIL_S * 1e9))
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

void tail_end(struct tail *tail, struct verdict_series *v)
{
    uint64_t highest = 0, low_before = UINT64_MAX, high_after = 0;
    uint32_t keep = 0;

    for (uint32_t i = 0; i < tail->count; i++)
        if (tail->held[place(tail, i)].bytes > highest)
            highest = tail->held[place(tail, i)].bytes;
    for (uint32_t i = 0; i < tail->count; i++)
        if ((double)tail->held[place(tail, i)].bytes >= (1 - EXIT_FALL) * (double)highest)
            keep = i + 1;
    for (uint32_t i = 0; i < tail->count; i++) {
        uint64_t bytes = tail->held[place(tail, i)].bytes;
        if (i < keep)
            low_before = bytes < low_before ? bytes : low_before;
        else
            high_after = bytes > high_after ? bytes : high_after;
    }
    if (high_after >= low_before)
        keep = tail->count; /* it has been as low just before: it swings, and need not end */
    for (; keep > 0; keep--)
        feed_oldest(tail, v);
    tail_drop(tail, v);
}
