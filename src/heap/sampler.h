/* Chooses the allocations to sample: a Poisson process over the bytes of each thread.
 * docs/reference/heap.md has the mathematics. */
#pragma once

#include "heap/heap.h"

/* Called when the countdown, after SIZE was subtracted, is below 0; draws the next countdown.
 * Returns true if this allocation is sampled, at the interval *ret_interval. Makes no system
 * call. */
bool sampler_hit(struct heap_thread *t, size_t size, uint64_t *ret_interval);

/* Called after a sample was taken at NOW_NS. Keeps the process below SAMPLER_RATE samples per
 * second in the long run by doubling the interval, and halves it again later, never below the base.
 * A token bucket permits bursts of two seconds' worth. Any thread may call it. */
enum { SAMPLER_RATE = 100 };
void sampler_adapt(uint64_t now_ns);
/* GPU blocks are few and large, so there is no countdown: each block is sampled independently with
 * probability 1 − exp(−size/interval), as on the host, but with a separate interval for GPUs. */
enum { SAMPLER_GPU_RATE = 500 };
bool sampler_hit_gpu(struct heap_thread *t, uint64_t size, uint64_t *ret_interval);
void sampler_adapt_gpu(uint64_t now_ns);
uint64_t sampler_gpu_interval(void);
uint64_t sampler_gpu_floor(void); /* raised together with the host's */
/* Samples store intervals in these units. */
enum { SAMPLER_UNIT = 64 };
#define SAMPLER_INTERVAL_MAX (UINT64_C(1) << 37)
uint64_t sampler_interval(void);
/* The smallest interval: the base, until the table is nearly full (live.c). */
uint64_t sampler_floor(void);
void sampler_set_floor(uint64_t bytes);
/* After fork, or for a new table: resets the interval to the base. */
void sampler_reset(void);

/* Returns 1 − exp(−size/interval), for all sizes and intervals. Never 0: an allocation of 0 bytes
 * counts as 1 byte. */
double sampler_probability(uint64_t size, uint64_t interval);
/* One step of the generator as an integer, and as a fraction in [0, 1). */
uint64_t sampler_random(uint64_t *random);
double sampler_fraction(uint64_t *random);
/* −interval·ln(u) for one step of the generator at *RANDOM; at least 1. */
int64_t sampler_draw(uint64_t *random, uint64_t interval);
