/* The Poisson process that chooses allocations, and the adaptive interval. Logarithm and
 * exponential are implemented here, because a program may export its own function called log, and
 * the dynamic linker would bind our call to it. */
#include "heap/sampler.h"

#include <string.h>

#define SECOND_TICKS (UINT64_C(1000000000) >> TICK_SHIFT)
#define DEFAULT_INTERVAL (UINT64_C(512) << 10)
/* The base interval for GPU blocks is the interval for host memory times this number, because GPU
 * blocks are larger. */
#define GPU_COARSER 4

enum {
    TICK_SHIFT = 16, /* a tick is 65.5 µs (2^16 ns), which leaves 16 bits for the tokens */
    TOKENS_MASK = (1 << TICK_SHIFT) - 1,
    /* Units per token; a sample costs one token. The bucket holds the tokens of two seconds, so
     * that a burst, such as the start of a program, may spend them at once. */
    ONE = 64,
    /* One update multiplies the interval by at most 2^UP_MAX. The measured rate is too high for a
     * moment after an update, because threads that drew their countdown at the old interval still
     * sample at the old rate. */
    UP_MAX = 3,
};

/* The sampling interval and its rate limit: one for host allocations, one for GPU blocks. */
struct pace {
    uint64_t coarser; /* factor by which the base interval exceeds the requested interval */
    uint64_t rate;    /* samples per second in the long run */
    _Atomic(uint64_t) interval_now; /* 0 means the base interval */
    _Atomic(uint64_t) floor;        /* 0 means the base interval */
    /* The high bits are the tick of the last refill, the low bits the tokens. */
    _Atomic(uint64_t) tokens;
    _Atomic(uint64_t) changed_tick; /* tick at which the interval was last changed */
};
_Static_assert(2 * SAMPLER_GPU_RATE * ONE <= TOKENS_MASK, "a full bucket fits below the tick");

static struct pace host = {.coarser = 1, .rate = SAMPLER_RATE};
static struct pace gpu = {.coarser = GPU_COARSER, .rate = SAMPLER_GPU_RATE};
static _Atomic(uint64_t) seeds;

static uint64_t whole_units(uint64_t bytes)
{
    if (bytes >= SAMPLER_INTERVAL_MAX)
        return SAMPLER_INTERVAL_MAX;
    bytes = (bytes + SAMPLER_UNIT - 1) / SAMPLER_UNIT * SAMPLER_UNIT;
    return bytes ? bytes : SAMPLER_UNIT;
}

static uint64_t base_of(const struct pace *p)
{
    uint64_t base = heap_process.base_interval;
    return whole_units(p->coarser * (base ? whole_units(base) : DEFAULT_INTERVAL));
}

static uint64_t interval_of(const struct pace *p)
{
    uint64_t now = HEAP_LOAD(p->interval_now);
    return now ? now : base_of(p);
}

static uint64_t floor_of(const struct pace *p)
{
    uint64_t floor = HEAP_LOAD(p->floor);
    return floor ? floor : base_of(p);
}

uint64_t sampler_interval(void)
{
    return interval_of(&host);
}

uint64_t sampler_floor(bool is_gpu)
{
    return floor_of(is_gpu ? &gpu : &host);
}

static void publish_interval(const struct pace *p)
{
    struct heap_table *t = heap_process.table;
    if (t)
        atomic_store_explicit(p == &gpu ? &t->header.gpu_interval : &t->header.interval,
                              interval_of(p), memory_order_relaxed);
}

static void shift_interval(struct pace *p, int up, int down)
{
    uint64_t old = HEAP_LOAD(p->interval_now), bytes;
    do {
        bytes = whole_units((old ? old : base_of(p)) << up >> down);
        if (bytes < floor_of(p))
            bytes = floor_of(p);
    } while (!atomic_compare_exchange_weak_explicit(&p->interval_now, &old, bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    publish_interval(p);
}

void sampler_set_floor(uint64_t bytes)
{
    uint64_t ratio = base_of(&gpu) / base_of(&host);
    HEAP_STORE(host.floor, whole_units(bytes));
    HEAP_STORE(gpu.floor, whole_units(bytes * ratio));
    shift_interval(&host, 0, 0);
    shift_interval(&gpu, 0, 0);
}

static void pace_reset(struct pace *p)
{
    HEAP_STORE(p->interval_now, 0);
    HEAP_STORE(p->floor, 0);
    HEAP_STORE(p->tokens, 0);
    HEAP_STORE(p->changed_tick, 0);
    publish_interval(p);
}

void sampler_reset(void)
{
    pace_reset(&host);
    pace_reset(&gpu);
}

/* ---- random numbers ---- */

uint64_t sampler_random(uint64_t *random)
{
    /* The generator adds an odd number, so it visits all states; the mixing steps make successive
     * values look unrelated. */
    uint64_t x = *random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

double sampler_fraction(uint64_t *random)
{
    return (double)(sampler_random(random) >> 11) * 0x1p-53;
}

/* Returns a seed from the time, the thread's address and a counter. The counter is needed because
 * time and address may both repeat: threads may start in the same nanosecond, and an address is
 * reused after its thread exits. */
static uint64_t seed(const struct heap_thread *t)
{
    uint64_t n = HEAP_ADD(seeds, 1) + 1;
    uint64_t state = heap_clock_ns() ^ n << 48 ^ (uint64_t)(uintptr_t)t << 16;
    state = sampler_random(&state);
    return state ? state : n;
}

/* Returns ln u for 0 < u ≤ 1. Splits u into m·2^e with m between √½ and √2, and computes ln m as
 * the series of 2·artanh((m − 1)/(m + 1)). */
static double log_of(double u)
{
    uint64_t bits;
    memcpy(&bits, &u, sizeof bits);
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m > 1.4142135623730951) {
        m /= 2;
        e++;
    }
    double s = (m - 1) / (m + 1), ss = s * s, sum = 0;
    for (int k = 19; k >= 1; k -= 2)
        sum = sum * ss + 1.0 / k;
    return 2 * s * sum + e * 0.6931471805599453;
}

double sampler_probability(uint64_t size, uint64_t interval)
{
    double x = (double)(size ? size : 1) / (double)(interval ? interval : 1);
    if (x > 40) /* the result is 1 within double precision */
        return 1;
    int halvings = 0;
    for (; x > 0.125; halvings++)
        x /= 2;
    double p = 0;
    for (int k = 9; k >= 1; k--)
        p = x / k * (1 - p);
    /* Each step computes 1 − e^(−2x) from p = 1 − e^(−x), without cancellation. */
    for (; halvings > 0; halvings--)
        p *= 2 - p;
    return p;
}

int64_t sampler_draw(uint64_t *random, uint64_t interval)
{
    double u = 1 - sampler_fraction(random);
    return (int64_t)(-log_of(u) * (double)interval) + 1;
}

/* ---- the countdown ---- */

/* Draws the next countdown. A draw of 1 must hit the very next byte, but only a negative countdown
 * is a hit, so 1 is subtracted from the draw. */
static void draw_next(struct heap_thread *t)
{
    t->interval = sampler_interval();
    t->drawn = t->countdown = sampler_draw(&t->random, t->interval) - 1;
}

/* Adds to the table's total the bytes that were allocated after the countdown was drawn. */
static void count_allocated(const struct heap_thread *t)
{
    struct heap_table *table = heap_process.table;
    int64_t bytes;
    if (table && !__builtin_sub_overflow(t->drawn, t->countdown, &bytes) && bytes > 0)
        HEAP_ADD(table->header.allocated_bytes, (uint64_t)bytes);
}

bool sampler_hit(struct heap_thread *t, size_t size, uint64_t *ret_interval)
{
    int64_t taken = size > INT64_MAX ? INT64_MAX : (int64_t)size, before;
    if (__builtin_add_overflow(t->countdown, taken, &before))
        before = INT64_MAX;
    count_allocated(t);
    /* No countdown was drawn yet: the random number generator is not seeded, or profiling was off
     * until now (life_rest). A new countdown is drawn, and the size of this allocation is
     * subtracted from it. */
    if (t->random == 0 || before < 0) {
        if (t->random == 0)
            t->random = seed(t);
        draw_next(t);
        t->countdown -= taken;
        t->drawn -= taken; /* count_allocated has already counted these bytes */
        if (t->countdown >= 0)
            return false;
    }
    *ret_interval = t->interval;
    draw_next(t);
    return true;
}

/* Decides whether a GPU block is sampled. Because 1 − exp(−x) ≤ x, most blocks can be rejected
 * without computing an exponential. */
bool sampler_hit_gpu(struct heap_thread *t, uint64_t size, uint64_t *ret_interval)
{
    uint64_t interval = interval_of(&gpu);
    if (t->gpu_random == 0)
        t->gpu_random = seed(t);
    double u = sampler_fraction(&t->gpu_random);
    if (u * (double)interval >= (double)size || u >= sampler_probability(size, interval))
        return false;
    *ret_interval = interval;
    return true;
}

/* ---- the rate ---- */

static uint64_t tokens_max(const struct pace *p)
{
    return 2 * p->rate * ONE;
}

/* Raises the interval. The faster the tokens were spent, the more the interval grows. */
static void raise_interval(struct pace *p, uint64_t now)
{
    uint64_t since = now - atomic_exchange_explicit(&p->changed_tick, now, memory_order_relaxed);
    int up = 1;
    while (up < UP_MAX && since << up < SECOND_TICKS)
        up++;
    shift_interval(p, up, 0);
}

static void lower_interval(struct pace *p, uint64_t now)
{
    HEAP_STORE(p->changed_tick, now);
    shift_interval(p, 0, 1);
}

/* Returns the tokens at *NOW, in units of 1/ONE token. If less than one unit was gained, sets *NOW
 * back to the time of the previous refill, so that the next call counts this time too. */
static uint64_t fill_tokens(const struct pace *p, uint64_t old, uint64_t *now)
{
    uint64_t last = old >> TICK_SHIFT, have = old & TOKENS_MASK, max = tokens_max(p);
    if (old == 0)
        return max;
    uint64_t gain = *now > last ? (*now - last) * p->rate * ONE / SECOND_TICKS : 0;
    if (gain == 0)
        *now = last;
    return have + gain < max ? have + gain : max;
}

void sampler_adapt(bool is_gpu, uint64_t now_ns)
{
    struct pace *p = is_gpu ? &gpu : &host;
    enum { KEEP, RAISE, LOWER } what;
    /* Each change of the interval leaves the bucket half full. Once the bucket is nearly full, the
     * interval may be halved. */
    const uint64_t changed = tokens_max(p) / 2, plenty = tokens_max(p) / 8 * 7;
    uint64_t now, next, old = HEAP_LOAD(p->tokens);
    do {
        now = now_ns >> TICK_SHIFT;
        uint64_t have = fill_tokens(p, old, &now);
        what = have < ONE ? RAISE : have >= plenty && interval_of(p) > floor_of(p) ? LOWER : KEEP;
        next = now << TICK_SHIFT | (what == KEEP ? have - ONE : changed);
    } while (!atomic_compare_exchange_weak_explicit(&p->tokens, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    if (what == RAISE)
        raise_interval(p, now);
    else if (what == LOWER)
        lower_interval(p, now);
}
