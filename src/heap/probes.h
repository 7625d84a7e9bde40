/* The probes of OpenTelemetry's contract for memory profilers: otel_memory:alloc(pointer, size,
 * weight) and otel_memory:free(pointer), for sampled blocks of the heap. weight is an unbiased
 * estimate of the bytes that the sample stands for.
 *
 * A probe consists of a nop, which a tracer turns into a trap, and a note in the ELF file, which
 * describes the probe. The tracer increments the probe's semaphore while it listens. Semaphores are
 * checked only for sampled blocks, so the probes add no cost to other blocks. */
#pragma once

#include "heap/heap.h"

extern volatile uint16_t probes_alloc_listeners HEAP_HIDDEN;
extern volatile uint16_t probes_free_listeners HEAP_HIDDEN;

void probes_fire_alloc(const void *p, uint64_t size, uint64_t weight);
void probes_fire_free(const void *p);

/* The OpenTelemetry contract does not cover mappings or GPU blocks. */
static inline bool probes_cover(enum heap_kind kind)
{
    return kind == HEAP_KIND_MALLOC || kind == HEAP_KIND_NEW || kind == HEAP_KIND_PYTHON;
}
