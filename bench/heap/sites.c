/* Allocates at many call sites for some seconds, frees some blocks, and writes the live bytes of
 * each site. The profiler's estimates are compared with these bytes.
 *
 *   sites SEED INTERVAL SECONDS FILE      writes a line per site: function, bytes, variance
 *
 * The variance is that of sampling at INTERVAL. The allocation rate is half of the rate that would
 * make sampling coarser. At the end the program waits to be killed. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { SITES = 20, TICKS_PER_S = 50, SAMPLES_PER_S = 80, SLOTS = 1 << 16 };

struct block {
    void *p;
    size_t size;
};

static struct site {
    const char *name;
    double bytes, variance;
    /* A static array, because the program's own bookkeeping must not call malloc. */
    struct block *blocks;
    uint32_t n;
} sites[SITES];

static struct block room[SITES][SLOTS];
static uint64_t random_state;
static double interval;

static uint64_t chance(uint64_t below)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (random_state >> 33) % below;
}

#define SITE(n)                                                                                    \
    static __attribute__((noinline)) void *site_##n(size_t size)                                   \
    {                                                                                              \
        void *volatile p = malloc(size);                                                           \
        return p;                                                                                  \
    }
#define FIVE(X, n) X(n##0) X(n##1) X(n##2) X(n##3) X(n##4)
#define ALL(X) FIVE(X, 1) FIVE(X, 2) FIVE(X, 3) FIVE(X, 4)
ALL(SITE)

#define TAKE(n) site_##n,
static void *(*const take[SITES])(size_t) = {ALL(TAKE)};
#define NAME(n) "site_" #n,
static const char *const names[SITES] = {ALL(NAME)};

static double variance_of(size_t size)
{
    double p = -expm1(-(double)size / interval);
    return (double)size * (double)size * (1 - p) / p;
}

static void count(struct site *s, size_t size, int sign)
{
    s->bytes += sign * (double)size;
    s->variance += sign * variance_of(size);
}

/* Each site has its own block sizes, from tens of bytes to several times the interval. */
static size_t size_at(int site)
{
    size_t scale = (size_t)16 << site % 14;
    return scale + chance(scale * 3);
}

static void allocate(int i)
{
    struct site *s = &sites[i];
    size_t size = size_at(i);
    void *p = take[i](size);
    if (!p)
        exit(1);
    /* One block in three is freed at once; if the slots are full, every new block is freed at
     * once. After a block is kept, a random block of the site is freed with a probability of one
     * in four. */
    if (s->n == SLOTS || chance(3) == 0) {
        free(p);
        return;
    }
    s->blocks[s->n++] = (struct block){p, size};
    count(s, size, 1);
    if (chance(4) == 0) {
        uint32_t k = (uint32_t)chance(s->n);
        free(s->blocks[k].p);
        count(s, s->blocks[k].size, -1);
        s->blocks[k] = s->blocks[--s->n];
    }
}

static void one_tick(void)
{
    double bytes = interval * SAMPLES_PER_S / TICKS_PER_S / SITES;
    for (int i = 0; i < SITES; i++) {
        size_t mean = ((size_t)16 << i % 14) * 5 / 2;
        double n = bytes / (double)mean;
        uint64_t whole = (uint64_t)n;
        whole += chance(1000) < (uint64_t)((n - (double)whole) * 1000);
        for (uint64_t k = 0; k < whole; k++)
            allocate(i);
    }
}

static int tell(const char *path)
{
    FILE *out = fopen(path, "w");
    if (!out)
        return 1;
    for (int i = 0; i < SITES; i++)
        fprintf(out, "%s %.0f %.0f\n", names[i], sites[i].bytes, sites[i].variance);
    return fclose(out);
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    random_state = strtoull(argv[1], NULL, 10) * UINT64_C(0x9e3779b97f4a7c15) + 1;
    interval = strtod(argv[2], NULL);
    for (int i = 0; i < SITES; i++)
        sites[i].blocks = room[i];
    struct timespec pause = {.tv_nsec = 1000000000 / TICKS_PER_S};
    for (int i = 0; i < atoi(argv[3]) * TICKS_PER_S; i++) {
        one_tick();
        nanosleep(&pause, NULL);
    }
    if (tell(argv[4]) != 0)
        return 1;
    sleep(600);
    return 0;
}
