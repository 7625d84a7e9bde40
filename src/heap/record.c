/* Takes and ends samples. Only these functions write samples to the table. */
#include "heap/record.h"

#include <errno.h>

#include "heap/life.h"
#include "heap/live.h"
#include "heap/probes.h"
#include "heap/sampler.h"
#include "heap/stacks.h"

/* Number of scratch buffers. A thread's stack may be 16 KB or less, too small for the frames of a
 * stack trace. */
enum { SCRATCHES = 16 };

struct scratch {
    _Alignas(64) _Atomic(uint32_t) is_taken;
    size_t natives; /* number of native frames in the sample for which this buffer was last used */
    struct unwind_frame native[HEAP_STACK_MAX];
    struct python_frame python[HEAP_STACK_MAX];
    uint64_t merged[HEAP_STACK_MAX];
};

static struct scratch scratches[SCRATCHES];

static struct scratch *scratch_take(void)
{
    for (int i = 0; i < SCRATCHES; i++)
        if (!HEAP_LOAD(scratches[i].is_taken) &&
            !atomic_exchange_explicit(&scratches[i].is_taken, 1, memory_order_acquire))
            return &scratches[i];
    return NULL;
}

static void scratch_leave(struct scratch *d)
{
    HEAP_STORE_RELEASE(d->is_taken, 0);
}

void record_reset(void)
{
    for (int i = 0; i < SCRATCHES; i++)
        if (HEAP_LOAD(scratches[i].is_taken))
            scratch_leave(&scratches[i]);
}

static size_t unwind_natives(struct scratch *d)
{
    bool is_whole;
    unwind_expect(d->native, d->natives);
    return d->natives = unwind_here(d->native, HEAP_STACK_MAX, &is_whole);
}

static uint32_t site_here(struct scratch *d)
{
    python_detect();
    size_t natives = unwind_natives(d);
    size_t pythons = python_frames(d->python, HEAP_STACK_MAX);
    size_t n = record_merge(d->native, natives, d->python, pythons, d->merged, HEAP_STACK_MAX);
    return stacks_site(d->merged, n);
}

/* Returns the call site of a GPU block. A thread without Python frames is assumed to run the
 * backward pass, whose native frames identify the call site. */
static uint32_t gpu_site_here(struct scratch *d, unsigned gpu)
{
    python_detect();
    size_t pythons = python_frames(d->python, HEAP_STACK_MAX);
    size_t natives = pythons ? 0 : unwind_natives(d);
    d->merged[0] = HEAP_FRAME_GPU | gpu;
    size_t n =
        record_merge(d->native, natives, d->python, pythons, d->merged + 1, HEAP_STACK_MAX - 1);
    return stacks_site(d->merged, n + 1);
}

static void add_live(const void *p, struct live_sample *sample)
{
    double probability = sampler_probability(sample->size, sample->interval);
    stacks_allocated(sample->site, sample->size, probability);
    bool is_added = live_add(p, sample);
    if (!is_added) {
        live_thin(sample->kind == HEAP_KIND_GPU ? &heap_thread.gpu_random : &heap_thread.random);
        is_added = live_add(p, sample);
    }
    if (!is_added)
        heap_drop(HEAP_DROP_LIVE);
    else if (HEAP_UNLIKELY(probes_alloc_listeners) && probes_cover(sample->kind))
        probes_fire_alloc(p, sample->size, (uint64_t)((double)sample->size / probability));
}

static void count_hook_ns(struct heap_table *t, uint64_t since_ns)
{
    HEAP_ADD(t->header.hook_ns, heap_clock_ns() - since_ns);
}

static void take_sample(struct scratch *d, const void *p, struct live_sample *sample, unsigned gpu)
{
    struct heap_table *t = heap_process.table;
    bool is_gpu = sample->kind == HEAP_KIND_GPU;
    uint64_t now = heap_clock_ns();
    sample->born_ms = (uint32_t)((now - t->header.start_ns) / 1000000);
    sample->site = is_gpu ? gpu_site_here(d, gpu) : site_here(d);
    HEAP_ADD(t->header.samples, 1);
    if (!is_gpu || sample->site != 0) /* site 0 belongs to host memory */
        add_live(p, sample);
    sampler_adapt(is_gpu, now);
    count_hook_ns(t, now);
}

/* Returns true once the table is frozen. It is frozen when the interpreter starts to shut down,
 * because the interpreter then frees everything, and the table has to show the heap of the running
 * program. */
static bool is_closed(void)
{
    if (!python_is_ending())
        return false;
    if (heap_process.table)
        HEAP_STORE(heap_process.table->header.is_ended, 1);
    return true;
}

/* Begins a sample, and creates the table at the first sample. Returns NULL if no sample may be
 * taken now. */
static struct scratch *begin_sample(void)
{
    if (is_closed() || (!life_is_on() && !life_make_table()))
        return NULL;
    struct scratch *d = scratch_take();
    if (!d)
        heap_drop(HEAP_DROP_NESTED);
    return d;
}

static void record_sample(const void *p, struct live_sample *sample, unsigned gpu)
{
    int saved = errno;
    heap_thread.busy++;
    struct scratch *d = begin_sample();
    if (d) {
        take_sample(d, p, sample, gpu);
        scratch_leave(d);
    }
    heap_thread.busy--;
    errno = saved;
}

void record_allocation(void *p, size_t size, uint64_t interval, enum heap_kind kind)
{
    struct live_sample sample = {.size = size, .interval = interval, .kind = kind};
    record_sample(p, &sample, 0);
}

void record_gpu_block(const void *key, uint64_t size, uint64_t interval, unsigned gpu)
{
    struct live_sample sample = {.size = size, .interval = interval, .kind = HEAP_KIND_GPU};
    record_sample(key, &sample, gpu);
}

uint32_t record_gpu_site(unsigned gpu)
{
    int saved = errno;
    heap_thread.busy++;
    struct scratch *d = begin_sample();
    uint32_t site = d ? gpu_site_here(d, gpu) : 0;
    if (d)
        scratch_leave(d);
    heap_thread.busy--;
    errno = saved;
    return site;
}

static void count_end(void)
{
    HEAP_ADD(heap_process.table->header.ends, 1);
}

static bool take_live(const void *p, struct live_sample *ret)
{
    if (!life_is_on() || is_closed())
        return false;
    /* The clock is read only after live_end succeeds, because most pointers passed to live_end are
     * false positives of the filter. */
    if (!live_end(p, ret))
        return false;
    int saved = errno;
    uint64_t now = heap_clock_ns();
    stacks_freed(ret->site, ret->size, sampler_probability(ret->size, ret->interval));
    if (HEAP_UNLIKELY(probes_free_listeners) && probes_cover(ret->kind))
        probes_fire_free(p);
    count_hook_ns(heap_process.table, now);
    errno = saved;
    return true;
}

bool record_take(const void *p, struct live_sample *ret)
{
    struct heap_thread *t = &heap_thread;
    if (!p || !life_enter(t))
        return false;
    bool was_sample = take_live(p, ret);
    life_leave(t);
    return was_sample;
}

bool record_end(const void *p)
{
    struct heap_thread *t = &heap_thread;
    struct live_sample sample;
    if (!p || !life_enter(t))
        return false;
    bool was_sample = take_live(p, &sample);
    if (was_sample)
        count_end();
    life_leave(t);
    return was_sample;
}

/* Returns the sampling interval for a sampled block that has grown to SIZE bytes. The interval is
 * chosen so that the expected number of hits in SIZE bytes equals the sum of two parts: the old
 * bytes at their old interval, and the added bytes at the current interval. */
static uint64_t grown_interval(const struct live_sample *sample, size_t size)
{
    double hits = (double)sample->size / (double)sample->interval +
                  (double)(size - sample->size) / (double)sampler_interval();
    return (uint64_t)((double)size / hits);
}

/* A sampled block has shrunk to SIZE bytes. Returns the probability that the byte that was hit is
 * still in the block. */
static double remaining_probability(const struct live_sample *sample, size_t size)
{
    if (size >= sample->size)
        return 1;
    return size == 0 ? 0
                     : sampler_probability(size, sample->interval) /
                           sampler_probability(sample->size, sample->interval);
}

static void continue_sample(void *p, size_t size, const struct live_sample *sample)
{
    if (!life_is_on() || is_closed())
        return;
    int saved = errno;
    struct live_sample next = *sample;
    next.size = size;
    if (size > sample->size)
        next.interval = grown_interval(sample, size);
    heap_thread.busy++;
    if (sampler_fraction(&heap_thread.random) < remaining_probability(sample, size))
        add_live(p, &next);
    else
        count_end();
    heap_thread.busy--;
    errno = saved;
}

void record_again(void *p, size_t size, const struct live_sample *sample)
{
    struct heap_thread *t = &heap_thread;
    if (!life_enter(t))
        return;
    continue_sample(p, size, sample);
    life_leave(t);
}
