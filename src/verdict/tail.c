/* Readings held back, and whether they counted. */
#include "verdict/tail.h"

#include <math.h>

static const double EXIT_FALL = 0.05; /* exits of the zoo's programs gave back 6 to 53 % */

static uint32_t place(const struct tail *tail, uint32_t i)
{
    return (tail->first + i) % TAIL_HELD;
}

void tail_feed(struct tail *tail, struct verdict_series *v)
{
    if (tail->count == 0)
        return;
    struct tail_reading oldest = tail->held[tail->first];
    verdict_update(v, oldest.t_ns, oldest.bytes);
    tail->fed[tail->n_fed++ % TAIL_FED] = oldest;
    tail->first = (tail->first + 1) % TAIL_HELD;
    tail->count--;
}

/* In double: a clock may have been set anywhere. Backwards: the series knows what to do. */
bool tail_is_due(const struct tail *tail, int64_t t_ns)
{
    return tail->count && (tail->count == TAIL_HELD ||
                           (double)t_ns - (double)tail->held[tail->first].t_ns >= TAIL_S * 1e9 ||
                           t_ns < tail->held[place(tail, tail->count - 1)].t_ns);
}

void tail_update(struct tail *tail, struct verdict_series *v, int64_t t_ns, uint64_t bytes)
{
    while (tail_is_due(tail, t_ns))
        tail_feed(tail, v);
    uint32_t at = place(tail, tail->count++);
    tail->held[at].t_ns = t_ns;
    tail->held[at].bytes = bytes;
}

void tail_release(struct tail *tail, struct verdict_series *v)
{
    while (tail->count)
        tail_feed(tail, v);
}

void tail_drop(struct tail *tail, struct verdict_series *v)
{
    while (tail->count > 0 && tail->count > v->samples)
        tail_feed(tail, v);
    tail->count = 0;
}

/* How many come before a fall that lasts to the end: the first place from which on all lie below
 * all before it, the last by EXIT_FALL. */
static uint32_t before_fall(const struct tail *tail)
{
    if (tail->count == 0)
        return 0;
    struct tail_reading last = tail->held[place(tail, tail->count - 1)];
    uint64_t lowest = UINT64_MAX;

    for (uint32_t i = 0; i < TAIL_FED && i < tail->n_fed; i++)
        if (fabs((double)last.t_ns - (double)tail->fed[i].t_ns) < TAIL_S * 1e9)
            lowest = tail->fed[i].bytes < lowest ? tail->fed[i].bytes : lowest;
    for (uint32_t k = 0; k < tail->count; k++) {
        uint64_t bytes, highest = 0;

        if (k > 0) {
            bytes = tail->held[place(tail, k - 1)].bytes;
            lowest = bytes < lowest ? bytes : lowest;
        }
        for (uint32_t i = k; i < tail->count; i++) {
            bytes = tail->held[place(tail, i)].bytes;
            highest = bytes > highest ? bytes : highest;
        }
        if (lowest < UINT64_MAX && highest < lowest &&
            (double)last.bytes < (1 - EXIT_FALL) * (double)lowest)
            return k;
    }
    return tail->count;
}

bool tail_all_falls(const struct tail *tail)
{
    return tail->count > 0 && before_fall(tail) == 0;
}

void tail_end(struct tail *tail, struct verdict_series *v)
{
    for (uint32_t keep = before_fall(tail); keep > 0; keep--)
        tail_feed(tail, v);
    tail_drop(tail, v);
}
