/* One sample: its stack, merged, interned, and put among the living. */
#pragma once

#include "heap/heap.h"
#include "heap/python.h"
#include "heap/unwind.h"

struct live_sample;

/* An allocation of SIZE at P that sampler_hit chose; makes the table if this is the first. P must
 * not be NULL. Preserves errno. */
void record_allocation(void *p, size_t size, uint64_t interval, enum heap_kind kind);
/* P is about to be given back, and live_maybe said yes. Preserves errno. True: it was a sample. */
bool record_end(void *p);
/* The same before a realloc, which may carry it on. */
bool record_take(void *p, struct live_sample *ret);
/* It does: P, SIZE bytes now, goes on as a sample of its old stack; one that shrank, only with the
 * probability that is left to it, and one of no bytes not at all. Its site has allocated and freed
 * by it, as by any other call, but it is no new sample. Preserves errno. */
void record_again(void *p, size_t size, const struct live_sample *sample);
/* In the child of a fork: what the parent's other threads had in hand is free. */
void record_reset(void);

/* Native frames and Python frames, both innermost first, as one stack of frame words, OUTERMOST
 * first. Each evaluation loop on the C stack is replaced by the Python frames it runs, up to and
 * with the next entry frame; the interpreter's own C frames are left out, but for those inside the
 * innermost Python frame. What does not match is kept, never lost: Python frames without a loop go
 * outermost. */
size_t record_merge(const struct unwind_frame *native, size_t natives,
                    const struct python_frame *python, size_t pythons, uint64_t *ret, size_t max);
