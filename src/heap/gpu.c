/* Records GPU blocks: totals, samples, and live memory at the time a request failed. */
#include "heap/gpu.h"

#include <string.h>

#include "heap/life.h"
#include "heap/live.h"
#include "heap/record.h"
#include "heap/sampler.h"

enum {
    KEY_SHIFT = 56,
    KIND_MASK = 15,
    WINDOW_MS = 250,
    WINDOW_REPORTS = 16, /* only one report in 16 reads the clock */
};

const void *gpu_key(const void *p, unsigned gpu)
{
    uintptr_t low = (uintptr_t)p & (((uintptr_t)1 << KEY_SHIFT) - 1);
    return (const void *)(low | (uintptr_t)(gpu + 1) << KEY_SHIFT);
}

static void next_window(struct heap_gpu *g, uint64_t allocated, bool is_first)
{
    uint64_t start_ns = heap_process.table->header.start_ns;
    uint32_t now_ms = (uint32_t)((heap_clock_ns() - start_ns) / 1000000);
    uint64_t low = HEAP_LOAD(g->low_bytes);
    bool is_over = now_ms - HEAP_LOAD(g->low_ms) >= WINDOW_MS;
    if (!is_first && !is_over) {
        if (allocated < low)
            HEAP_STORE(g->low_bytes, allocated);
        return;
    }
    HEAP_STORE(g->low_before_bytes, is_first ? allocated : low);
    HEAP_STORE(g->low_bytes, allocated);
    HEAP_STORE(g->low_ms, now_ms);
}

/* Updates the totals. The allocator holds its lock while it reports, so separate loads and stores
 * lose no update. */
static void note_totals(unsigned gpu, uint64_t allocated, uint64_t reserved)
{
    if (!life_is_on())
        return;
    struct heap_gpu *g = &heap_process.table->header.gpus[gpu];
    uint64_t reports = HEAP_LOAD(g->reports);
    HEAP_STORE(g->reports, reports + 1);
    if (allocated > INT64_MAX || reserved > INT64_MAX)
        return;
    HEAP_STORE(g->allocated_bytes, allocated);
    HEAP_STORE(g->reserved_bytes, reserved);
    if (allocated > HEAP_LOAD(g->allocated_peak_bytes))
        HEAP_STORE(g->allocated_peak_bytes, allocated);
    if (reports % WINDOW_REPORTS == 0)
        next_window(g, allocated, reports == 0);
    else if (allocated < HEAP_LOAD(g->low_bytes))
        HEAP_STORE(g->low_bytes, allocated);
}

static void note_block(struct heap_thread *t, const void *p, int64_t size, uint64_t allocated,
                       uint64_t reserved, int gpu)
{
    uint64_t interval;
    if (gpu < 0 || gpu >= HEAP_GPUS) {
        heap_drop(HEAP_DROP_GPU);
        return;
    }
    note_totals((unsigned)gpu, allocated, reserved);
    const void *key = gpu_key(p, (unsigned)gpu);
    if (!p || size == 0)
        return;
    if (size < 0) {
        if (live_maybe(key))
            record_end(key);
    } else if (t->busy) {
        heap_drop(HEAP_DROP_NESTED);
    } else if (sampler_hit_gpu(t, (uint64_t)size, &interval)) {
        record_gpu_block(key, (uint64_t)size, interval, (unsigned)gpu);
    }
}

void gpu_block(const void *p, int64_t size, uint64_t allocated, uint64_t reserved, int gpu)
{
    struct heap_thread *t = &heap_thread;
    if (!life_start() || !life_enter(t))
        return;
    note_block(t, p, size, allocated, reserved, gpu);
    life_leave(t);
}

/* ---- out of memory ---- */

/* Live bytes by call site; only one thread at a time sums them up. */
static uint64_t site_bytes[HEAP_SITES];
static _Atomic(uint32_t) is_summing;

static void sum_sites(const struct heap_table *t, unsigned gpu)
{
    uint32_t high = HEAP_LOAD_ACQUIRE(t->header.live_high);
    memset(site_bytes, 0, sizeof site_bytes);
    for (uint32_t i = 0; i < high && i < HEAP_LIVE; i++) {
        const struct heap_live *e = &t->live[i];
        uint64_t ptr = HEAP_LOAD_ACQUIRE(e->ptr);
        uint32_t kind = HEAP_LOAD(e->kind_turn) & KIND_MASK;
        if (kind != HEAP_KIND_GPU || ptr >> KEY_SHIFT != gpu + 1)
            continue;
        uint64_t size = HEAP_LOAD(e->size);
        uint64_t interval = HEAP_LOAD(e->interval);
        uint32_t site = HEAP_LOAD(e->site);
        site_bytes[site < HEAP_SITES ? site : 0] +=
            (uint64_t)((double)size / sampler_probability(size, interval * SAMPLER_UNIT));
    }
}

static void keep_largest(struct heap_oom *ret)
{
    for (size_t k = 0; k < HEAP_OOM_SITES; k++) {
        uint32_t best = 0;
        for (uint32_t i = 1; i < HEAP_SITES; i++)
            if (site_bytes[i] > site_bytes[best])
                best = i;
        HEAP_STORE(ret->top[k].site, best);
        HEAP_STORE(ret->top[k].bytes, site_bytes[best]);
        site_bytes[best] = 0;
    }
}

/* Returns the slot for failed request number NUMBER. The slot of the first request is never reused,
 * because later failures are often consequences of the first. */
static struct heap_oom *oom_place(struct heap_header *h, uint64_t number)
{
    return &h->ooms[number == 1 ? 0 : 1 + (number - 2) % (HEAP_OOMS - 1)];
}

void gpu_reset(void)
{
    atomic_store(&is_summing, 0);
}

static void note_failure(int64_t size, uint64_t allocated, uint64_t reserved, int gpu)
{
    if (gpu < 0 || gpu >= HEAP_GPUS || heap_thread.busy)
        return;
    uint32_t site = record_gpu_site((unsigned)gpu);
    if (!life_is_on())
        return;
    struct heap_table *t = heap_process.table;
    uint64_t number = atomic_fetch_add(&t->header.oom_count, 1) + 1;
    if (atomic_exchange(&is_summing, 1) != 0)
        /* the failure is counted but not stored, because another thread is storing a failure */
        return;
    struct heap_oom *o = oom_place(&t->header, number);
    HEAP_STORE_RELEASE(o->number, 0);
    HEAP_STORE_RELEASE(o->gpu, (uint32_t)gpu);
    HEAP_STORE_RELEASE(o->born_ms, (uint32_t)((heap_clock_ns() - t->header.start_ns) / 1000000));
    HEAP_STORE_RELEASE(o->site, site);
    HEAP_STORE_RELEASE(o->request_bytes, size > 0 ? (uint64_t)size : 0);
    HEAP_STORE_RELEASE(o->allocated_bytes, allocated);
    HEAP_STORE_RELEASE(o->reserved_bytes, reserved);
    sum_sites(t, (unsigned)gpu);
    keep_largest(o);
    HEAP_STORE_RELEASE(o->number, (uint32_t)number);
    atomic_store(&is_summing, 0);
}

void gpu_out_of_memory(int64_t size, uint64_t allocated, uint64_t reserved, int gpu)
{
    struct heap_thread *t = &heap_thread;
    if (!life_start() || !life_enter(t))
        return;
    note_failure(size, allocated, reserved, gpu);
    life_leave(t);
}
