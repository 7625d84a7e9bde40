/* The Poisson process that chooses allocations, and the interval it goes by.
 *
 * Logarithm and exponential are our own: a program may well export a function called log, and the
 * dynamic linker would have us call that one. */
#include "heap/sampler.h"

#include <string.h>

#define WINDOW_TICKS (UINT64_C(125000000) >> TICK_SHIFT)
#define QUIET_TICKS (UINT64_C(1000000000) >> TICK_SHIFT)
#define DEFAULT_INTERVAL (UINT64_C(512) << 10)

enum {
    TICK_SHIFT = 16, /* a tick is 65.5 µs: leaves 16 bits for the count of a window */
    COUNT_MASK = (1 << TICK_SHIFT) - 1,
    PER_WINDOW = SAMPLER_RATE / 8,
    /* Threads that drew under the old interval still come in after a raise, and would be taken for
     * a rate that is still too high: no raise goes all the way at once. */
    UP_MAX = 3,
    DOWN_MAX = 10,
};

static _Atomic(uint64_t) interval_now;   /* 0: the base */
static _Atomic(uint64_t) interval_floor; /* 0: the base */
static _Atomic(uint64_t) window;         /* tick of its start above its count of samples */
static _Atomic(uint64_t) quiet_ticks;
static _Atomic(uint64_t) seeds;

static uint64_t whole_units(uint64_t bytes)
{
    if (bytes >= SAMPLER_INTERVAL_MAX)
        return SAMPLER_INTERVAL_MAX;
    bytes = (bytes + SAMPLER_UNIT - 1) / SAMPLER_UNIT * SAMPLER_UNIT;
    return bytes ? bytes : SAMPLER_UNIT;
}

static uint64_t base_interval(void)
{
    uint64_t base = heap_process.base_interval;
    return base ? whole_units(base) : DEFAULT_INTERVAL;
}

uint64_t sampler_interval(void)
{
    uint64_t now = atomic_load_explicit(&interval_now, memory_order_relaxed);
    return now ? now : base_interval();
}

uint64_t sampler_floor(void)
{
    uint64_t floor = atomic_load_explicit(&interval_floor, memory_order_relaxed);
    return floor ? floor : base_interval();
}

static void publish(void)
{
    struct heap_table *t = heap_process.table;
    if (t)
        atomic_store_explicit(&t->header.interval, sampler_interval(), memory_order_relaxed);
}

static void shift_interval(int up, int down)
{
    uint64_t old = atomic_load_explicit(&interval_now, memory_order_relaxed), bytes;
    do {
        bytes = whole_units((old ? old : base_interval()) << up >> down);
        if (bytes < sampler_floor())
            bytes = sampler_floor();
    } while (!atomic_compare_exchange_weak_explicit(&interval_now, &old, bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    publish();
}

void sampler_set_floor(uint64_t bytes)
{
    atomic_store_explicit(&interval_floor, whole_units(bytes), memory_order_relaxed);
    shift_interval(0, 0);
}

void sampler_reset(void)
{
    atomic_store_explicit(&interval_now, 0, memory_order_relaxed);
    atomic_store_explicit(&interval_floor, 0, memory_order_relaxed);
    atomic_store_explicit(&window, 0, memory_order_relaxed);
    atomic_store_explicit(&quiet_ticks, 0, memory_order_relaxed);
    publish();
}

/* ---- chance ---- */

uint64_t sampler_random(uint64_t *random)
{
    /* An odd step goes through all states; the mixing makes them look unrelated. */
    uint64_t x = *random += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

double sampler_fraction(uint64_t *random)
{
    return (double)(sampler_random(random) >> 11) * 0x1p-53;
}

/* Threads may start in the same nanosecond, and at the address of one that is gone. */
static void seed(struct heap_thread *t)
{
    uint64_t n = atomic_fetch_add_explicit(&seeds, 1, memory_order_relaxed) + 1;
    uint64_t state = heap_clock_ns() ^ n << 48 ^ (uint64_t)(uintptr_t)t << 16;
    state = sampler_random(&state);
    t->random = state ? state : n;
}

/* For 0 < u ≤ 1: u = m·2^e with m between √½ and √2, and ln m = 2·artanh((m − 1)/(m + 1)). */
static double log_of(double u)
{
    uint64_t bits;
    memcpy(&bits, &u, sizeof(bits));
    int e = (int)(bits >> 52) - 1023;
    bits = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1023) << 52;
    double m;
    memcpy(&m, &bits, sizeof(m));
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
    if (x > 40) /* 1 to the last bit */
        return 1;
    int halvings = 0;
    for (; x > 0.125; halvings++)
        x /= 2;
    double p = 0;
    for (int k = 9; k >= 1; k--)
        p = x / k * (1 - p);
    /* 1 − e^(−2x) from 1 − e^(−x), with nothing lost to cancellation. */
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

/* A draw of 1 means the very next byte, and the slow way is taken below 0. */
static void draw_next(struct heap_thread *t)
{
    t->interval = sampler_interval();
    t->countdown = sampler_draw(&t->random, t->interval) - 1;
}

bool sampler_hit(struct heap_thread *t, size_t size, uint64_t *ret_interval)
{
    int64_t taken = size > INT64_MAX ? INT64_MAX : (int64_t)size, before;
    if (__builtin_add_overflow(t->countdown, taken, &before))
        before = INT64_MAX;
    /* Not seeded yet, or what was hit is gone by without a sample: a process without memory may
     * start again at this allocation. */
    if (t->random == 0 || before < 0) {
        if (t->random == 0)
            seed(t);
        draw_next(t);
        t->countdown -= taken;
        if (t->countdown >= 0)
            return false;
    }
    *ret_interval = t->interval;
    draw_next(t);
    return true;
}

/* ---- the rate ---- */

static void too_fast(uint64_t ticks)
{
    int up = 1;
    while (up < UP_MAX && ticks << up < WINDOW_TICKS)
        up++;
    atomic_store_explicit(&quiet_ticks, 0, memory_order_relaxed);
    shift_interval(up, 0);
}

/* N samples in TICKS, at least a window. Under a quarter of the rate for a second, it is brought
 * to half of it at most. */
static void slow_enough(uint64_t n, uint64_t ticks)
{
    if (n * WINDOW_TICKS * 4 >= PER_WINDOW * ticks) {
        atomic_store_explicit(&quiet_ticks, 0, memory_order_relaxed);
        return;
    }
    if (atomic_fetch_add_explicit(&quiet_ticks, ticks, memory_order_relaxed) + ticks < QUIET_TICKS)
        return;
    int down = 1;
    while (down < DOWN_MAX && (n << (down + 2)) * WINDOW_TICKS <= PER_WINDOW * ticks)
        down++;
    atomic_store_explicit(&quiet_ticks, 0, memory_order_relaxed);
    shift_interval(0, down);
}

void sampler_adapt(uint64_t now_ns)
{
    uint64_t now = now_ns >> TICK_SHIFT, ticks, n, next;
    uint64_t old = atomic_load_explicit(&window, memory_order_relaxed);
    bool is_over;
    do {
        uint64_t start = old ? old >> TICK_SHIFT : now;
        n = (old & COUNT_MASK) + 1;
        ticks = now > start ? now - start : 0;
        is_over = n > PER_WINDOW || ticks >= WINDOW_TICKS;
        next = is_over ? now << TICK_SHIFT : start << TICK_SHIFT | n;
    } while (!atomic_compare_exchange_weak_explicit(&window, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    if (!is_over)
        return;
    if (ticks < WINDOW_TICKS)
        too_fast(ticks);
    else
        slow_enough(n, ticks);
}
