/* Measures the cost of the hooks for a pair of malloc and free within one process. The variants
 * run in turn in short blocks; the result is the median difference from glibc's own functions, in
 * CPU time of the thread.
 *
 *   filter [TURNS]        default: 300
 *
 * "pair" allocates a block of 64 bytes and frees it at once. "mix" allocates 16 to 1,024 bytes and
 * frees in random order among 4,096 blocks. The column "live" is the number of live samples. Their
 * addresses are spread as in a heap with one sample per 512 KiB; the heap itself is small,
 * because only the filter is measured. With LD_PRELOAD (under `ebb run`), the preloaded malloc is
 * another variant. This variant has the same number of samples; they are created by cutting one
 * mapping into pieces. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

#include "heap/heap.h"
#include "heap/live.h"
#include "heap/sampler.h"

enum { PAIRS = 20000, SLOTS = 4096, TURNS_MAX = 2000, THREADS_MAX = 2, LIVE_MANY = 20000 };

/* glibc's own malloc and free, even if another malloc is preloaded. */
extern void *__libc_malloc(size_t size);
extern void __libc_free(void *p);

#define NOINLINE __attribute__((noinline))

static void *(*volatile real_malloc)(size_t);
static void (*volatile real_free)(void *);

/* ---- the compared variants ---- */

static NOINLINE void *pass_malloc(size_t size)
{
    return real_malloc(size);
}

static NOINLINE void pass_free(void *p)
{
    real_free(p);
}

/* This variant takes no samples, because the countdown starts at a very large value. */
static NOINLINE void *counted_malloc(size_t size)
{
    heap_thread.countdown -= (int64_t)size;
    if (HEAP_UNLIKELY(heap_thread.countdown < 0))
        heap_thread.countdown = INT64_MAX;
    return real_malloc(size);
}

static NOINLINE void maybe_live_free(void *p)
{
    struct live_sample sample;
    live_end(p, &sample);
    real_free(p);
}

static NOINLINE void filtered_free(void *p)
{
    if (HEAP_LIKELY(!live_maybe(p)))
        real_free(p);
    else
        maybe_live_free(p);
}

/* An alternative filter layout, in which the hash of a pointer selects any bit of the filter. */
static _Atomic(uint64_t) scattered[LIVE_FILTER_BITS / 64];

static inline uint32_t scattered_bit(uintptr_t p)
{
    return (uint32_t)((uint64_t)(p >> 4) * UINT64_C(0x9e3779b97f4a7c15) >> 43);
}

static NOINLINE void scattered_free(void *p)
{
    uint32_t bit = scattered_bit((uintptr_t)p);
    uint64_t word = atomic_load_explicit(&scattered[bit / 64], memory_order_relaxed);
    if (HEAP_LIKELY((word >> bit % 64 & 1) == 0))
        real_free(p);
    else
        maybe_live_free(p);
}

struct way {
    const char *name;
    void *(*take)(size_t);
    void (*give)(void *);
};
static const struct way ways[] = {
    /* The reference of the comparison: glibc's own malloc. */
    {"plain", __libc_malloc, __libc_free},
    {"pass through", pass_malloc, pass_free},
    {"countdown, filter", counted_malloc, filtered_free},
    {"bits scattered", counted_malloc, scattered_free},
    {"as preloaded", malloc, free},
};
enum { WAYS_MAX = sizeof(ways) / sizeof(ways[0]) };
static int n_ways = WAYS_MAX - 1;

/* ---- the measured loops ---- */

struct worker {
    pthread_t thread;
    bool is_mix;
    int turns;
    void *slots[SLOTS];
    double ns[WAYS_MAX][TURNS_MAX];
};

static pthread_barrier_t gate;

static double cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static NOINLINE void pairs(const struct way *way)
{
    for (int i = 0; i < PAIRS; i++) {
        char *volatile p = way->take(64);
        way->give(p);
    }
}

static NOINLINE void mix(const struct way *way, void **slots, uint64_t *random)
{
    for (int i = 0; i < PAIRS; i++) {
        *random = *random * UINT64_C(6364136223846793005) + 1442695040888963407;
        void **slot = &slots[*random >> 52];
        way->give(*slot);
        *slot = way->take(16 + (*random >> 32) % 1009);
    }
}

static void *work(void *argument)
{
    struct worker *w = argument;
    uint64_t random = 1;
    heap_thread.countdown = INT64_MAX;
    /* The first three turns are a warm-up and are discarded. */
    for (int turn = -3; turn < w->turns; turn++)
        for (int i = 0; i < n_ways; i++) {
            const struct way *way = &ways[((unsigned)i + (unsigned)(turn + 3)) % (unsigned)n_ways];
            pthread_barrier_wait(&gate);
            double start = cpu_ns();
            if (w->is_mix)
                mix(way, w->slots, &random);
            else
                pairs(way);
            if (turn >= 0)
                w->ns[way - ways][turn] = (cpu_ns() - start) / PAIRS;
        }
    for (int i = 0; i < SLOTS; i++)
        free(w->slots[i]);
    return NULL;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), by_value);
    return values[n / 2];
}

/* Returns the median, over all threads and turns, of a variant's time or of its difference to the
 * plain variant. */
static double result(const struct worker *workers, int threads, int way)
{
    static double all[THREADS_MAX * TURNS_MAX];
    int n = 0;
    for (int k = 0; k < threads; k++)
        for (int i = 0; i < workers[k].turns; i++)
            all[n++] = workers[k].ns[way][i] - (way ? workers[k].ns[0][i] : 0);
    return median(all, n);
}

static void measure(bool is_mix, int threads, uint32_t live, int turns)
{
    static struct worker workers[THREADS_MAX];
    pthread_barrier_init(&gate, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++) {
        workers[i] = (struct worker){.is_mix = is_mix, .turns = turns};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
            exit(1);
    }
    for (int i = 0; i < threads; i++)
        pthread_join(workers[i].thread, NULL);
    pthread_barrier_destroy(&gate);
    printf("%-5s %d  %6u  %7.1f", is_mix ? "mix" : "pair", threads, live,
           result(workers, threads, 0));
    for (int i = 1; i < n_ways; i++)
        printf("  %17.2f", result(workers, threads, i));
    printf("\n");
}

static void add_live(uint32_t n)
{
    uint64_t random = 1, p = UINT64_C(0x7e0000000000);
    const struct live_sample sample = {.size = 64, .interval = UINT64_C(512) << 10};
    for (uint32_t i = 0; i < n; i++) {
        p += (uint64_t)sampler_draw(&random, UINT64_C(512) << 10) & ~UINT64_C(15);
        if (live_add((const void *)(uintptr_t)p, &sample)) {
            uint32_t bit = scattered_bit((uintptr_t)p);
            atomic_fetch_or(&scattered[bit / 64], UINT64_C(1) << bit % 64);
        }
    }
}

/* Creates N live samples for the preloaded variant: reserves N times 512 KiB, which are never
 * touched, and cuts this mapping into N pieces. */
static void add_live_pieces(uint32_t n)
{
    const size_t page = 4096, len = (size_t)n << 19;
    uint64_t random = 1;
    char *start =
        mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (n == 0 || start == MAP_FAILED)
        return;
    for (uint32_t i = 1; i < n; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        munmap(start + ((size_t)i << 19) + (random >> 33) % 100 * page, page);
    }
}

int main(int argc, char **argv)
{
    int turns = argc > 1 ? atoi(argv[1]) : 300;
    turns = turns < 1 ? 1 : turns > TURNS_MAX ? TURNS_MAX : turns;
    real_malloc = __libc_malloc;
    real_free = __libc_free;
    if (getenv("LD_PRELOAD"))
        n_ways = WAYS_MAX;
    void *table = mmap(NULL, sizeof(struct heap_table), PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        return 1;
    heap_process.table = table;
    printf("ns a pair; added to plain:\nwork  threads live  plain");
    for (int i = 1; i < n_ways; i++)
        printf("  %17s", ways[i].name);
    printf("\n");
    for (uint32_t live = 0; live <= LIVE_MANY; live += LIVE_MANY) {
        add_live(live);
        if (n_ways == WAYS_MAX)
            add_live_pieces(live);
        for (int threads = 1; threads <= THREADS_MAX; threads++) {
            measure(false, threads, live, turns);
            measure(true, threads, live, turns);
        }
    }
    return 0;
}
