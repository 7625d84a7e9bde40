/* Holds back the newest readings and decides whether they are used. */
#include "verdict/tail.h"

/* During an exit, memory falls by at least this fraction. Exits of the programs in zoo/ released 6
 * to 53 %. */
static const double EXIT_FALL = 0.05;

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

/* The difference is computed in double, because the clock may have been set to any time, and a
 * difference of integers could overflow. The series itself handles a clock that was set back. */
bool tail_is_due(const struct tail *tail, int64_t t_ns)
{
    double held_ns = (tail->is_table ? TAIL_TABLE_S : TAIL_S) * 1e9;
    return tail->count && (tail->count == TAIL_HELD ||
                           (double)t_ns - (double)tail->held[tail->first].t_ns >= held_ns ||
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

static uint64_t lower(struct tail_reading a, double from_ns, double to_ns, uint64_t lowest)
{
    return (double)a.t_ns > from_ns && (double)a.t_ns < to_ns && a.bytes < lowest ? a.bytes
                                                                                  : lowest;
}

/* Returns the lowest reading in the TAIL_S seconds before reading K, or UINT64_MAX if there is
 * none. K is the index of a reading that is held back; readings that were passed on recently are
 * included. */
static uint64_t lowest_before(const struct tail *tail, uint32_t k)
{
    double to_ns = (double)tail->held[place(tail, k)].t_ns, from_ns = to_ns - TAIL_S * 1e9;
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; i < TAIL_FED && i < tail->n_fed; i++)
        lowest = lower(tail->fed[i], from_ns, to_ns, lowest);
    for (uint32_t i = 0; i < k; i++)
        lowest = lower(tail->held[place(tail, i)], from_ns, to_ns, lowest);
    return lowest;
}

/* Returns how many of the readings that are held back come before a fall that lasts to the end. All
 * readings of the fall must be lower than all readings shortly before it, and the last one must be
 * lower by EXIT_FALL. */
static uint32_t count_before_fall(const struct tail *tail)
{
    uint64_t highest = 0, last = 0;
    uint32_t found = tail->count;
    for (uint32_t k = tail->count; k-- > 0;) {
        uint64_t bytes = tail->held[place(tail, k)].bytes, lowest = lowest_before(tail, k);
        if (k + 1 == tail->count)
            last = bytes;
        highest = bytes > highest ? bytes : highest;
        if (lowest < UINT64_MAX && highest < lowest &&
            (double)last < (1 - EXIT_FALL) * (double)lowest)
            found = k;
    }
    return found;
}

bool tail_all_falls(const struct tail *tail)
{
    return tail->count > 0 && count_before_fall(tail) == 0;
}

void tail_end(struct tail *tail, struct verdict_series *v)
{
    for (uint32_t keep = count_before_fall(tail); keep > 0; keep--)
        tail_feed(tail, v);
    tail_drop(tail, v);
}
