/* Takes a sample and ends one: the only way into the table. */
#include "heap/record.h"

#include <errno.h>

#include "heap/life.h"
#include "heap/live.h"
#include "heap/sampler.h"
#include "heap/stacks.h"

/* Stacks are too long for the stack: a thread may have 16 KB of it, a signal handler less. */
enum { SCRATCHES = 16 };

struct scratch {
    _Alignas(64) _Atomic(uint32_t) is_taken;
    size_t natives; /* of the last sample taken here */
    struct unwind_frame native[HEAP_STACK_MAX];
    struct python_frame python[HEAP_STACK_MAX];
    uint64_t merged[HEAP_STACK_MAX];
};

static struct scratch scratches[SCRATCHES];

static struct scratch *scratch_take(void)
{
    for (int i = 0; i < SCRATCHES; i++)
        if (!atomic_load_explicit(&scratches[i].is_taken, memory_order_relaxed) &&
            !atomic_exchange_explicit(&scratches[i].is_taken, 1, memory_order_acquire))
            return &scratches[i];
    return NULL;
}

static void scratch_leave(struct scratch *d)
{
    atomic_store_explicit(&d->is_taken, 0, memory_order_release);
}

void record_reset(void)
{
    for (int i = 0; i < SCRATCHES; i++)
        if (atomic_load_explicit(&scratches[i].is_taken, memory_order_relaxed))
            scratch_leave(&scratches[i]);
}

static uint32_t site_here(struct scratch *d)
{
    bool is_whole;
    python_look();
    unwind_expect(d->native, d->natives);
    size_t natives = d->natives = unwind_here(d->native, HEAP_STACK_MAX, &is_whole);
    size_t pythons = python_frames(d->python, HEAP_STACK_MAX);
    size_t n = record_merge(d->native, natives, d->python, pythons, d->merged, HEAP_STACK_MAX);
    return stacks_site(d->merged, n);
}

static void add_live(const void *p, struct live_sample *sample)
{
    stacks_allocated(sample->site, sample->size,
                     sampler_probability(sample->size, sample->interval));
    if (live_add(p, sample))
        return;
    live_thin(&heap_thread.random);
    if (!live_add(p, sample))
        heap_drop(HEAP_DROP_LIVE);
}

static void count_hook_ns(struct heap_table *t, uint64_t since_ns)
{
    atomic_fetch_add_explicit(&t->header.hook_ns, heap_clock_ns() - since_ns, memory_order_relaxed);
}

static void take_sample(struct scratch *d, void *p, struct live_sample *sample)
{
    struct heap_table *t = heap_process.table;
    uint64_t now = heap_clock_ns();
    sample->born_ms = (uint32_t)((now - t->header.start_ns) / 1000000);
    sample->site = site_here(d);
    atomic_fetch_add_explicit(&t->header.samples, 1, memory_order_relaxed);
    add_live(p, sample);
    sampler_adapt(now);
    count_hook_ns(t, now);
}

/* What the program held is what it held before its interpreter began to take everything down: from
 * then on the table stays as it is. */
static bool is_closed(void)
{
    if (!python_is_ending())
        return false;
    if (heap_process.table)
        atomic_store_explicit(&heap_process.table->header.is_ended, 1, memory_order_relaxed);
    return true;
}

void record_allocation(void *p, size_t size, uint64_t interval, enum heap_kind kind)
{
    int saved = errno;
    heap_thread.busy++;
    if (!is_closed() && (life_is_on() || life_make_table())) {
        struct live_sample sample = {.size = size, .interval = interval, .kind = kind};
        struct scratch *d = scratch_take();
        if (d) {
            take_sample(d, p, &sample);
            scratch_leave(d);
        } else {
            heap_drop(HEAP_DROP_NESTED);
        }
    }
    heap_thread.busy--;
    errno = saved;
}

static void count_end(void)
{
    atomic_fetch_add_explicit(&heap_process.table->header.ends, 1, memory_order_relaxed);
}

bool record_take(void *p, struct live_sample *ret)
{
    if (!p || !life_is_on() || is_closed())
        return false;
    if (!live_end(p, ret)) /* most of what the filter lets through: not even the clock is read */
        return false;
    int saved = errno;
    uint64_t now = heap_clock_ns();
    stacks_freed(ret->site, ret->size, sampler_probability(ret->size, ret->interval));
    count_hook_ns(heap_process.table, now);
    errno = saved;
    return true;
}

bool record_end(void *p)
{
    struct live_sample sample;
    bool was_sample = record_take(p, &sample);
    if (was_sample)
        count_end();
    return was_sample;
}

/* So that size/interval is the number of hits to be expected in it: those of its old bytes under
 * their interval and of the new ones under that of today. */
static uint64_t grown_interval(const struct live_sample *sample, size_t size)
{
    double hits = (double)sample->size / (double)sample->interval +
                  (double)(size - sample->size) / (double)sampler_interval();
    return (uint64_t)((double)size / hits);
}

/* That the hit was in what is left of it. */
static double stays(const struct live_sample *sample, size_t size)
{
    if (size >= sample->size)
        return 1;
    return size == 0 ? 0
                     : sampler_probability(size, sample->interval) /
                           sampler_probability(sample->size, sample->interval);
}

void record_again(void *p, size_t size, const struct live_sample *sample)
{
    if (!life_is_on() || is_closed())
        return;
    int saved = errno;
    struct live_sample next = *sample;
    next.size = size;
    if (size > sample->size)
        next.interval = grown_interval(sample, size);
    heap_thread.busy++;
    if (sampler_fraction(&heap_thread.random) < stays(sample, size))
        add_live(p, &next);
    else
        count_end();
    heap_thread.busy--;
    errno = saved;
}
