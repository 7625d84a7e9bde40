/* Taking a sample: unwinds, merges and interns its stack, and adds it to the live samples. */
#pragma once

#include "heap/heap.h"
#include "heap/python.h"
#include "heap/unwind.h"

struct live_sample;

/* Records an allocation of SIZE at P that sampler_hit chose; creates the table for the first one. P
 * must not be NULL. Preserves errno. */
void record_allocation(void *p, size_t size, uint64_t interval, enum heap_kind kind);
/* Records a GPU block that sampler_hit_gpu chose; KEY is from gpu_key. If the thread runs Python,
 * only Python frames are taken, in a tenth of the time. */
void record_gpu_block(const void *key, uint64_t size, uint64_t interval, unsigned gpu);
/* The site of the current stack on GPU, without a sample; 0: unknown. Preserves errno. */
uint32_t record_gpu_site(unsigned gpu);
/* Called before P is freed, if live_maybe returned true. Returns true if P was sampled. Preserves
 * errno. */
bool record_end(const void *p);
/* Like record_end, before a realloc, after which record_again may continue the sample. */
bool record_take(const void *p, struct live_sample *ret);
/* Continues SAMPLE as P, now SIZE bytes, with its old stack. A block that shrank is kept with the
 * probability that the sampled byte is in the remaining part, an empty one never. The site counts
 * an allocation and a free, but no new sample. Preserves errno. */
void record_again(void *p, size_t size, const struct live_sample *sample);
/* In the child of a fork: releases the scratch buffers of the parent's other threads. */
void record_reset(void);

/* Native frames and Python frames, both innermost first, as one stack of frame words, OUTERMOST
 * first. Each evaluation loop on the C stack is replaced by the Python frames it runs, up to and
 * including the next entry frame; the interpreter's own C frames are left out, except those inside
 * the innermost Python frame. Python frames without an evaluation loop are put outermost. */
size_t record_merge(const struct unwind_frame *native, size_t natives,
                    const struct python_frame *python, size_t pythons, uint64_t *ret, size_t max);
