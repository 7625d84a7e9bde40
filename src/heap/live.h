/* The samples that live: a filter that tells almost every free() at once that its pointer is none
 * of them, an index by pointer, and the entries in the table. Lock-free.
 *
 * hash(p) → its top 20 bits are the bit of the filter, its top 12 the bucket of 16 cells of the
 * index, so that all samples with the same bit are in the same bucket. A cell is the entry's number
 * (16 bits) and a fingerprint of the pointer (16 bits). Adding: entry, cell, then bit. Ending:
 * cell, entry, clear the bit, look through the bucket and set it again if another has it. Whatever
 * order two threads meet in, a sample that is there has its bit but for a moment; one whose end is
 * missed in that moment is found when its address is given out again (HEAP_DROP_STALE). */
#pragma once

#include "heap/heap.h"

enum { LIVE_FILTER_BITS = 1 << 20, LIVE_BUCKETS = 1 << 12, LIVE_CELLS = 16 };

extern _Atomic(uint64_t) live_filter[LIVE_FILTER_BITS / 64];

static inline uint64_t live_hash(uintptr_t p)
{
    return (p >> 4) * UINT64_C(0x9e3779b97f4a7c15);
}

/* False: P is certainly no sample. */
static inline bool live_maybe(const void *p)
{
    uint64_t bit = live_hash((uintptr_t)p) >> 44;
    return atomic_load_explicit(&live_filter[bit >> 6], memory_order_relaxed) >> (bit & 63) & 1;
}

struct live_sample {
    uint64_t size;
    uint64_t interval;
    uint32_t site;
    uint32_t born_ms;
    enum heap_kind kind;
};

/* Before P is given to the program. An old sample at P is ended first. False: no room. */
bool live_add(const void *p, const struct live_sample *sample);
/* Before P is given back. False: it was no sample. */
bool live_end(const void *p, struct live_sample *ret);
/* Does P live? Does not end it. */
bool live_find(const void *p, struct live_sample *ret);
/* Makes room: doubles the interval and lets each sample stay with the probability that it would
 * have been taken under the new one. Called by live_add's callers when it says no; one at a time.
 */
void live_thin(uint64_t *random);
/* Mappings that overlap [START, START+LEN): each is ended, and what is left of it on either side is
 * added again. Walks the entries; for munmap, not for free. */
void live_cut(uintptr_t start, size_t len);
void live_reset(void); /* after fork: nothing lives */
