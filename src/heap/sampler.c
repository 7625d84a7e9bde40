/* The Poisson process that chooses allocations, and the interval it goes by.
 *
 * Logarithm and exponential are our own: a program may well export a function called log, and the
 * dynamic linker would have us call that one. */
#include "heap/sampler.h"

#include <string.h>

#define SECOND_TICKS (UINT64_C(1000000000) >> TICK_SHIFT)
#define DEFAULT_INTERVAL (UINT64_C(512) << 10)

enum {
    TICK_SHIFT = 16, /* a tick is 65.5 µs: leaves 16 bits for the purse */
    PURSE_MASK = (1 << TICK_SHIFT) - 1,
    /* The purse holds what samples may still be taken, in parts of one: a burst, such as a program
     * that starts, may spend two seconds' worth at once. */
    ONE = 64,
    PURSE_MAX = 2 * SAMPLER_RATE * ONE,
    PURSE_CHANGED = PURSE_MAX / 2,    /* what is in it after a change, */
    PURSE_PLENTY = PURSE_MAX / 8 * 7, /* and with this much in it the interval may be halved */
    /* Threads that drew under the old interval still come in after a raise, and would be taken for
     * a rate that is still too high: no raise goes all the way at once. */
    UP_MAX = 3,
};

static _Atomic(uint64_t) interval_now;   /* 0: the base */
static _Atomic(uint64_t) interval_floor; /* 0: the base */
static _Atomic(uint64_t) purse;          /* tick of its last filling above what is in it */
static _Atomic(uint64_t) changed_tick;   /* of the interval */
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

static void publish_interval(void)
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
    publish_interval();
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
    atomic_store_explicit(&purse, 0, memory_order_relaxed);
    atomic_store_explicit(&changed_tick, 0, memory_order_relaxed);
    publish_interval();
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

/* The faster it was spent, the farther the interval goes up. */
static void raise_interval(uint64_t now)
{
    uint64_t since = now - atomic_exchange_explicit(&changed_tick, now, memory_order_relaxed);
    int up = 1;
    while (up < UP_MAX && since << up < SECOND_TICKS)
        up++;
    shift_interval(up, 0);
}

static void lower_interval(uint64_t now)
{
    atomic_store_explicit(&changed_tick, now, memory_order_relaxed);
    shift_interval(0, 1);
}

/* What is in the purse at NOW, and since when; a clock that goes back fills nothing. */
static uint64_t fill_tokens(uint64_t old, uint64_t *now)
{
    uint64_t last = old >> TICK_SHIFT, have = old & PURSE_MASK;
    if (old == 0)
        return PURSE_MAX;
    uint64_t gain = *now > last ? (*now - last) * SAMPLER_RATE * ONE / SECOND_TICKS : 0;
    if (gain == 0)
        *now = last; /* its parts of a part are not lost */
    return have + gain < PURSE_MAX ? have + gain : PURSE_MAX;
}

void sampler_adapt(uint64_t now_ns)
{
    enum { KEEP, RAISE, LOWER } what;
    uint64_t now, next, old = atomic_load_explicit(&purse, memory_order_relaxed);
    do {
        now = now_ns >> TICK_SHIFT;
        uint64_t have = fill_tokens(old, &now);
        what = have < ONE                                                     ? RAISE
               : have >= PURSE_PLENTY && sampler_interval() > sampler_floor() ? LOWER
                                                                              : KEEP;
        next = now << TICK_SHIFT | (what == KEEP ? have - ONE : PURSE_CHANGED);
    } while (!atomic_compare_exchange_weak_explicit(&purse, &old, next, memory_order_relaxed,
                                                    memory_order_relaxed));
    if (what == RAISE)
        raise_interval(now);
    else if (what == LOWER)
        lower_interval(now);
}
