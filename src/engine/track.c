/* Histories of bounded size. */
#include "engine/track.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

static void merge_pairs(struct track *t)
{
    for (uint32_t i = 0; i < TRACK_BLOCKS / 2; i++) {
        uint32_t a = 2 * i, b = 2 * i + 1;
        uint32_t least = t->block_min[b] < t->block_min[a] ? b : a;
        t->block_min[i] = t->block_min[least];
        t->block_t_ns[i] = t->block_t_ns[least];
    }
    t->blocks = TRACK_BLOCKS / 2;
    t->block_ns *= 2;
}

static void block_open(struct track *t, uint64_t t_ns, uint64_t bytes)
{
    if (t->blocks == TRACK_BLOCKS)
        merge_pairs(t);
    t->block_min[t->blocks] = bytes;
    t->block_t_ns[t->blocks] = t_ns;
    t->blocks++;
    t->block_start_ns = t_ns;
}

/* A little under a second, so that a tick that comes early is not taken for the same one. */
static const uint64_t RECENT_NS = 900 * NS_PER_MS;

static void recent_add(struct track *t, uint64_t t_ns, uint64_t bytes)
{
    if (t->recent_count && t_ns - t->recent_ns < RECENT_NS) {
        t->recent[(t->recent_count - 1) % TRACK_RECENT] = bytes;
        return;
    }
    t->recent[t->recent_count++ % TRACK_RECENT] = bytes;
    t->recent_ns = t_ns;
}

void track_add(struct track *t, uint64_t t_ns, uint64_t bytes)
{
    if (t->samples == 0) {
        *t = (struct track){.first_ns = t_ns,
                            .first_bytes = bytes,
                            .least_bytes = bytes,
                            .block_ns = 100 * NS_PER_MS,
                            .from_ns = t->from_ns,
                            .until_ns = t->until_ns,
                            .peak_bytes = t->peak_bytes};
        block_open(t, t_ns, bytes);
    } else if (t_ns < t->last_ns) {
        t_ns = t->last_ns;
    }
    if (t_ns - t->block_start_ns >= t->block_ns) {
        block_open(t, t_ns, bytes);
    } else if (bytes < t->block_min[t->blocks - 1]) {
        t->block_min[t->blocks - 1] = bytes;
        t->block_t_ns[t->blocks - 1] = t_ns;
    }
    if (t_ns - t->first_ns < NS_PER_S)
        t->first_bytes = bytes;
    t->samples++;
    t->last_ns = t_ns;
    t->last_bytes = bytes;
    t->sum_bytes += (double)bytes;
    if (bytes > t->peak_bytes)
        t->peak_bytes = bytes;
    if (bytes < t->least_bytes)
        t->least_bytes = bytes;
    recent_add(t, t_ns, bytes);
}

void track_raise_peak(struct track *t, uint64_t bytes)
{
    if (bytes > t->peak_bytes)
        t->peak_bytes = bytes;
}

uint64_t track_mean(const struct track *t)
{
    return t->samples ? (uint64_t)(t->sum_bytes / (double)t->samples) : 0;
}

static int by_size(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static uint64_t median_of(const uint64_t *v, uint32_t count)
{
    uint64_t sorted[TRACK_BLOCKS];
    memcpy(sorted, v, count * sizeof *v);
    qsort(sorted, count, sizeof *sorted, by_size);
    return sorted[(count - 1) / 2];
}

/* The first block that counts. */
static uint32_t first_block(const struct track *t)
{
    if (t->from_ns == 0)
        return t->blocks / 10;
    uint32_t i = 0;
    while (i + 1 < t->blocks && t->block_t_ns[i] < t->from_ns)
        i++;
    return i;
}

/* The one after the last that counts. */
static uint32_t end_block(const struct track *t, uint32_t from)
{
    uint32_t end = t->blocks;
    while (t->until_ns && end > from + 1 && t->block_t_ns[end - 1] > t->until_ns)
        end--;
    return end;
}

bool track_floor(const struct track *t, uint64_t *ret_first, uint64_t *ret_last)
{
    if (t->samples == 0)
        return false;
    uint32_t from = first_block(t), end = end_block(t, from), count = end - from;
    uint32_t fifth = count < 5 ? 1 : count / 5;
    *ret_first = median_of(t->block_min + from, fifth);
    *ret_last = median_of(t->block_min + end - fifth, fifth);
    return true;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;
    return (x > y) - (x < y);
}

bool track_rate(const struct track *t, double *ret_bytes_per_min)
{
    double slopes[TRACK_BLOCKS * (TRACK_BLOCKS - 1) / 2];
    size_t count = 0;
    if (t->blocks < 8 || t->last_ns - t->first_ns < 3 * NS_PER_S)
        return false;
    uint32_t from = first_block(t), end = end_block(t, from);
    for (uint32_t i = from; i < end; i++)
        for (uint32_t j = i + 1; j < end; j++)
            if (t->block_t_ns[j] > t->block_t_ns[i])
                slopes[count++] = ((double)t->block_min[j] - (double)t->block_min[i]) /
                                  (double)(t->block_t_ns[j] - t->block_t_ns[i]);
    if (count == 0)
        return false;
    qsort(slopes, count, sizeof *slopes, by_value);
    *ret_bytes_per_min = slopes[count / 2] * 60.0 * (double)NS_PER_S;
    return true;
}

size_t track_recent(const struct track *t, uint64_t ret[TRACK_RECENT])
{
    size_t count = t->recent_count < TRACK_RECENT ? t->recent_count : TRACK_RECENT;
    for (size_t i = 0; i < count; i++)
        ret[i] = t->recent[(t->recent_count - count + i) % TRACK_RECENT];
    return count;
}
