/* Takes a sample: unwinds, merges and interns the stack, and adds the sample to the live
 * samples. */
#pragma once

#include "heap/heap.h"
#include "heap/python.h"
#include "heap/unwind.h"

struct live_sample;

/* Records an allocation of SIZE bytes at P that sampler_hit chose. Creates the table at the first
 * sample. P must not be NULL. Preserves errno. */
void record_allocation(void *p, size_t size, uint64_t interval, enum heap_kind kind);
/* Records a GPU block that sampler_hit_gpu chose; KEY is from gpu_key. If the thread runs Python,
 * native frames are left out, so that recording takes only a tenth of the time. */
void record_gpu_block(const void *key, uint64_t size, uint64_t interval, unsigned gpu);
/* Returns the call site that a block on this GPU would have with the current stack, or 0 if
 * unknown. Takes no sample. Preserves errno. */
uint32_t record_gpu_site(unsigned gpu);
/* Ends the sample at P. To be called before P is freed, if live_maybe returned true. Returns true
 * if P was sampled. Preserves errno. */
bool record_end(const void *p);
/* Like record_end, but for a block that is about to be reallocated: record_again may then add the
 * sample again. */
bool record_take(const void *p, struct live_sample *ret);
/* Adds SAMPLE again, with its old stack, after realloc or mremap. The block is now at P and has
 * SIZE bytes. If the block has shrunk, it stays sampled with the probability that the sampled byte
 * is in the remaining part; an empty block is never sampled. One allocation and one free are added
 * to the call site, but header.samples stays unchanged. Preserves errno. */
void record_again(void *p, size_t size, const struct live_sample *sample);
/* For the child of a fork: releases the scratch buffers that other threads of the parent were
 * using. */
void record_reset(void);

/* Merges native and Python frames, both innermost first, into one stack of frame words, outermost
 * first. Each evaluation loop on the C stack is replaced by the Python frames that it runs, up to
 * and including the next entry frame. The interpreter's own C frames are left out, except those
 * that the innermost Python frame calls. Python frames without an evaluation loop become the
 * outermost frames. */
size_t record_merge(const struct unwind_frame *native, size_t natives,
                    const struct python_frame *python, size_t pythons, uint64_t *ret, size_t max);
