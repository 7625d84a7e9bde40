/* The samples that live: a filter that tells almost every free() at once that its pointer is none
 * of them, an index by pointer, and the entries in the table. Lock-free.
 *
 * live_bit(p) is the bit of the filter, its low 12 bits the bucket of 16 cells of the index, so
 * that all samples with the same bit are in the same bucket. A cell is the entry's number (16 bits)
 * and a fingerprint of the pointer (16 bits, the other 9 of its bit among them). Adding: entry,
 * cell, then bit. Ending: cell, entry; then, if the bucket holds no other with this bit, clear the
 * bit, look through the bucket again and set it again if one has come. Whatever order two threads
 * meet in, a sample that is there has its bit but for a moment; one whose end is missed in that
 * moment is found when its address is given out again (HEAP_DROP_STALE), or given back once more.
 */
#pragma once

#include "heap/heap.h"

enum { LIVE_FILTER_BITS = 1 << 21, LIVE_BUCKETS = 1 << 12, LIVE_CELLS = 16 };

extern _Atomic(uint64_t) live_filter[LIVE_FILTER_BITS / 64] HEAP_HIDDEN;

/* What lies within 8 KiB has its bits within one cache line of the filter, for a program takes and
 * gives back near by; where in the line is different for each stretch, for large blocks all begin
 * at the same offset of a page. */
static inline uint32_t live_bit(uintptr_t p)
{
    uint64_t stretch = (uint64_t)(p >> 13) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(stretch >> 43) ^ (uint32_t)(p >> 4 & 511);
}

/* False: P is certainly no sample. */
static inline bool live_maybe(const void *p)
{
    uint32_t bit = live_bit((uintptr_t)p);
    return atomic_load_explicit(&live_filter[bit >> 6], memory_order_relaxed) >> (bit & 63) & 1;
}

struct live_sample {
    uint64_t size;
    uint64_t interval;
    uint32_t site;
    uint32_t born_ms;
    enum heap_kind kind;
};

/* Before P is given to the program. An old sample at P is ended first. False: no room; the caller
 * may call live_thin and try again, and counts the drop when it gives up. */
bool live_add(const void *p, const struct live_sample *sample);
/* Before P is given back. False: it was no sample. */
bool live_end(const void *p, struct live_sample *ret);
/* Does P live? Does not end it. */
bool live_find(const void *p, struct live_sample *ret);
/* Makes room if the table is nearly full: doubles the least interval until a quarter is free, and
 * lets each sample stay with the probability that it would have been taken under that. One thread
 * at a time: another one goes on without. */
void live_thin(uint64_t *random);
/* Mappings that overlap [START, START+LEN): each is ended, what is gone of it counted as freed, and
 * what is left of it on either side added again, with the interval that keeps the probability with
 * which the whole was taken. For munmap, not for free. */
void live_cut(uintptr_t start, size_t len);
void live_reset(void); /* after fork, or a new table: nothing lives */
