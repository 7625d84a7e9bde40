/* Records blocks of GPU memory that PyTorch's caching allocators report. A GPU block goes through
 * the sampler, the stacks and the live samples like a block of host memory, with the GPU as its
 * outermost frame. The allocator holds its lock while it calls this code, which therefore never
 * waits and never calls CUDA or Python. */
#pragma once

#include "heap/heap.h"

/* Returns the pointer that represents a GPU block in the index of live samples. It differs from all
 * host pointers and from pointers of other GPUs. */
const void *gpu_key(const void *p, unsigned gpu);
/* Records that a block of SIZE bytes at P was allocated, or freed if SIZE is negative. ALLOCATED
 * and RESERVED are the allocator's totals; values above INT64_MAX are ignored. A block on GPU
 * number HEAP_GPUS or above is only counted as a drop. Preserves errno. */
void gpu_block(const void *p, int64_t size, uint64_t allocated, uint64_t reserved, int gpu);
/* Resets the state, for a new table or in the child of a fork. No other thread may be running. */
void gpu_reset(void);
/* Records a failed request of SIZE bytes, and the call sites with the most live bytes on this GPU.
 * Preserves errno. */
void gpu_out_of_memory(int64_t size, uint64_t allocated, uint64_t reserved, int gpu);
