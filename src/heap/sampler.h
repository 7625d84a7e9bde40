/* Chooses the allocations to sample, by a Poisson process over the bytes of each thread.
 * docs/reference/heap.md describes the mathematics. */
#pragma once

#include "heap/heap.h"

/* Called when SIZE has been subtracted from the countdown and the countdown is below 0. Draws the
 * next countdown. Returns true if this allocation is sampled, at the interval *ret_interval. Makes
 * no system call. */
bool sampler_hit(struct heap_thread *t, size_t size, uint64_t *ret_interval);

/* Adapts the interval of host or GPU memory after a sample was taken at NOW_NS. Multiplies the
 * interval by 2, 4 or 8 if the process would otherwise take more than SAMPLER_RATE (GPU:
 * SAMPLER_GPU_RATE) samples per second in the long run. Halves the interval again in periods with
 * few samples, but never below sampler_floor. A token bucket permits bursts of two seconds' worth
 * of samples. Any thread may call this function. */
enum { SAMPLER_RATE = 100 };
void sampler_adapt(bool is_gpu, uint64_t now_ns);
/* Decides whether a GPU block is sampled. GPU blocks are few and large, so there is no countdown:
 * each block is sampled independently with probability 1 − exp(−size/interval). GPUs have an
 * interval of their own. */
enum { SAMPLER_GPU_RATE = 500 };
bool sampler_hit_gpu(struct heap_thread *t, uint64_t size, uint64_t *ret_interval);
/* Samples store intervals in units of this many bytes. */
enum { SAMPLER_UNIT = 64 };
#define SAMPLER_INTERVAL_MAX (UINT64_C(1) << 37)
uint64_t sampler_interval(void);
/* Returns the lower bound of the interval: the base interval, until live.c raises the bound because
 * the table is nearly full. The bound for GPU blocks is raised together with the host's. */
uint64_t sampler_floor(bool is_gpu);
void sampler_set_floor(uint64_t bytes);
/* Resets the interval to the base, after fork or for a new table. */
void sampler_reset(void);

/* Returns 1 − exp(−size/interval), for all sizes and intervals. Never 0: an allocation of 0 bytes
 * is treated as one of 1 byte. */
double sampler_probability(uint64_t size, uint64_t interval);
/* Both functions advance the random number generator. sampler_fraction returns a number in [0,
 * 1). */
uint64_t sampler_random(uint64_t *random);
double sampler_fraction(uint64_t *random);
/* Returns −interval·ln(u), at least 1, for the next random number u of the generator at *RANDOM. */
int64_t sampler_draw(uint64_t *random, uint64_t interval);
