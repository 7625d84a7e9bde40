/* Provides a new, zeroed table for each test and resets all related state. */
#pragma once

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

#include "heap/heap.h"
#include "heap/live.h"
#include "heap/sampler.h"
#include "heap/stacks.h"

static inline void reset_all(void)
{
    sampler_reset();
    live_reset();
    stacks_reset();
}

static inline int fresh_table(void **state)
{
    (void)state;
    void *memory = mmap(NULL, sizeof(struct heap_table), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return -1;
    memset(&heap_process, 0, sizeof(heap_process));
    heap_process.table = memory;
    heap_process.base_interval = UINT64_C(512) << 10;
    reset_all();
    return 0;
}

static inline int drop_table(void **state)
{
    (void)state;
    munmap(heap_process.table, sizeof(struct heap_table));
    heap_process.table = NULL;
    reset_all();
    return 0;
}

static inline uint64_t drops(enum heap_drop kind)
{
    return atomic_load(&heap_process.table->header.drops[kind]);
}
