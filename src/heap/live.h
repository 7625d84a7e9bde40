/* The live samples: a filter, an index by pointer, and the entries in the table. Thanks to the
 * filter, almost every free() detects at once that its pointer is not sampled. Lock-free.
 *
 * live_bit(p) is the bit of the filter. Its low 12 bits select a bucket of 16 cells of the index,
 * so all samples with the same bit are in the same bucket. A cell consists of the entry's number
 * (16 bits) and a fingerprint of the pointer (16 bits, 9 of which are the remaining bits of
 * live_bit(p)).
 *
 * A sample is added in this order: entry, cell, bit. It is removed in this order: cell, entry, bit.
 * The bit is cleared only if the bucket has no other sample with this bit. The bucket is then read
 * again, and the bit is set again if another thread has added such a sample in the meantime. A live
 * sample therefore lacks its bit for a moment at most. If the sample is freed in that moment, the
 * free is missed. The sample is then removed when its address is allocated or freed again
 * (HEAP_DROP_STALE). */
#pragma once

#include "heap/heap.h"

enum { LIVE_FILTER_BITS = 1 << 21, LIVE_BUCKETS = 1 << 12, LIVE_CELLS = 16 };

extern _Atomic(uint64_t) live_filter[LIVE_FILTER_BITS / 64] HEAP_HIDDEN;

/* Returns the filter bit of P. Programs allocate and free neighbouring blocks together, so all
 * pointers in the same 8 KiB have their bits in one cache line of the filter. The position in that
 * line also depends on the 8 KiB range, because large blocks all start at the same offset in a page
 * and would otherwise get the same position. */
static inline uint32_t live_bit(uintptr_t p)
{
    uint64_t stretch = (uint64_t)(p >> 13) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(stretch >> 43) ^ (uint32_t)(p >> 4 & 511);
}

/* Returns false if P is certainly not sampled. */
static inline bool live_maybe(const void *p)
{
    uint32_t bit = live_bit((uintptr_t)p);
    return HEAP_LOAD(live_filter[bit >> 6]) >> (bit & 63) & 1;
}

struct live_sample {
    uint64_t size;
    uint64_t interval;
    uint32_t site;
    uint32_t born_ms;
    enum heap_kind kind;
};

/* Adds a sample for P; called before P is returned to the program. Removes an old sample at P
 * first. Returns false if the table is full; the caller may then call live_thin and try again. If
 * the second attempt also fails, the caller counts the drop. */
bool live_add(const void *p, const struct live_sample *sample);
/* Removes the sample at P; called before P is freed. Returns false if P was not sampled. */
bool live_end(const void *p, struct live_sample *ret);
/* Finds the sample at P without removing it. */
bool live_find(const void *p, struct live_sample *ret);
/* Makes room if the table is nearly full: doubles the smallest interval until a quarter of the
 * table is free, and removes samples at random, as if all samples had been drawn at the new
 * interval. Returns at once if another thread is already making room. */
void live_thin(uint64_t *random);
/* Removes the sampled mappings that overlap [START, START+LEN), for munmap. The overlap is recorded
 * as freed. The parts before and after the overlap are added again, at an interval that leaves
 * their probability of being sampled unchanged. */
void live_cut(uintptr_t start, size_t len);
void live_reset(void); /* removes all samples, after fork or for a new table */
