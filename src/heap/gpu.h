/* Blocks of GPUs, as PyTorch's caching allocators report them: each goes through the sampler, the
 * stacks and the live samples like a block of the host, with the GPU as its outermost frame. Called
 * under the allocator's lock: no call of CUDA or Python, no wait. */
#pragma once

#include "heap/heap.h"

/* The pointer of a block in the index of live samples: no host pointer and no pointer of another
 * GPU is equal to it. */
const void *gpu_key(const void *p, unsigned gpu);
/* A block of SIZE bytes at P was handed out, or with SIZE below 0 taken back. ALLOCATED and
 * RESERVED are the allocator's totals; those above INT64_MAX are not believed. A GPU that is not
 * below HEAP_GPUS is counted as a drop. Preserves errno. */
void gpu_block(const void *p, int64_t size, uint64_t allocated, uint64_t reserved, int gpu);
/* For a new table and in the child of a fork, where no other thread is running. */
void gpu_reset(void);
/* A request of SIZE bytes has failed. Keeps it in the table with the largest call sites of live
 * blocks of this GPU. Preserves errno. */
void gpu_out_of_memory(int64_t size, uint64_t allocated, uint64_t reserved, int gpu);
