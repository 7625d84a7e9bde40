/* Which allocations are sampled: a Poisson process over the bytes of each thread. The mathematics
 * is in docs/heap.md. */
#pragma once

#include "heap/heap.h"

/* On the slow way, SIZE having been taken from the countdown: draws the next countdown. True: this
 * allocation is a sample, and *ret_interval the one it was drawn under. Costs no system call. */
bool sampler_hit(struct heap_thread *t, size_t size, uint64_t *ret_interval);

/* A sample was taken at NOW_NS: keeps the process under SAMPLER_RATE a second in the long run by
 * doubling the interval, and halves it again (never below the base) when it can be. A burst may
 * spend what was saved in two seconds. Any thread. */
enum { SAMPLER_RATE = 200 };
void sampler_adapt(uint64_t now_ns);
/* Intervals are whole units, for so they are stored with the samples. */
enum { SAMPLER_UNIT = 64 };
#define SAMPLER_INTERVAL_MAX (UINT64_C(1) << 37)
uint64_t sampler_interval(void);
/* Under which the interval does not go: the base, until room is wanting (live.c). */
uint64_t sampler_floor(void);
void sampler_set_floor(uint64_t bytes);
/* After fork, or a new table: the base again. */
void sampler_reset(void);

/* 1 − exp(−size/interval), for all sizes and intervals; never 0: an allocation of no bytes is taken
 * for one of 1. */
double sampler_probability(uint64_t size, uint64_t interval);
/* One step of the generator, and one as a fraction in [0, 1). */
uint64_t sampler_random(uint64_t *random);
double sampler_fraction(uint64_t *random);
/* −interval·ln(u) for one step of the generator at *RANDOM; at least 1. */
int64_t sampler_draw(uint64_t *random, uint64_t interval);
