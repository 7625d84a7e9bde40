/* Counts its own live bytes by call site and prints them, as the reference for the profiler's
 * estimates. Each call site is in a section of its own, so that the range of its addresses is
 * known. */
#include <link.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 100 };

/* The sum of squared block sizes is needed as well, for the standard deviation due to sampling.
 * Sizes are grouped by powers of two. */
struct truth {
    uint64_t bytes;
    uint64_t objects_by_size[40];
};

#define SITE(name)                                                                                 \
    extern const char __start_site_##name[], __stop_site_##name[];                                 \
    static struct truth name##_truth;                                                              \
    static __attribute__((noinline, section("site_" #name))) void name(void)

static int log2_of(size_t size)
{
    return 63 - __builtin_clzll(size);
}

static void lives(struct truth *t, size_t size)
{
    t->bytes += size;
    t->objects_by_size[log2_of(size)]++;
}

static void *volatile sink;

SITE(small)
{
    for (size_t i = 0; i < 2000; i++) {
        size_t size = 64 + i % 8 * 16;
        void *kept = malloc(size);
        sink = malloc(size);
        free(sink);
        sink = kept;
        lives(&small_truth, size);
    }
}

SITE(medium)
{
    for (int i = 0; i < 60; i++) {
        sink = malloc(4096);
        lives(&medium_truth, 4096);
    }
}

SITE(large)
{
    sink = calloc(4, 64 << 10);
    lives(&large_truth, 256 << 10);
}

/* Grows one block in small steps. If every realloc subtracted the whole new size from the
 * countdown, the block would be sampled many times. */
SITE(stepwise)
{
    for (int i = 0; i < 8; i++) {
        void *p = malloc(64);
        for (size_t size = 128; size <= 32 << 10; size += 64)
            p = realloc(p, size);
        sink = p;
        lives(&stepwise_truth, 32 << 10);
    }
}

SITE(shrunk)
{
    for (int i = 0; i < 25; i++) {
        sink = realloc(malloc(24 << 10), 8 << 10);
        lives(&shrunk_truth, 8 << 10);
    }
}

SITE(aligned)
{
    for (int i = 0; i < 12; i++) {
        void *p;
        if (posix_memalign(&p, 4096, 16 << 10) == 0)
            lives(&aligned_truth, 16 << 10);
        sink = p;
    }
}

static void *map(size_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

SITE(halved)
{
    char *p = map(512 << 10);
    if (munmap(p + (256 << 10), 256 << 10) == 0)
        lives(&halved_truth, 256 << 10);
    sink = p;
}

SITE(remapped)
{
    sink = mremap(map(64 << 10), 64 << 10, 256 << 10, MREMAP_MAYMOVE);
    lives(&remapped_truth, 256 << 10);
}

SITE(churned)
{
    for (size_t i = 0; i < 30; i++) {
        sink = malloc(1 + i * 17 % 20000);
        free(sink);
        sink = map(8192);
        munmap(sink, 8192);
    }
}

static uintptr_t base;

static int note_base(struct dl_phdr_info *info, size_t len, void *nothing)
{
    (void)len;
    (void)nothing;
    base = info->dlpi_addr; /* The program itself is the first entry of the linker's list. */
    return 1;
}

static void tell(const char *name, const char *start, const char *end, const struct truth *t)
{
    printf("%s %lu %lu %lu", name, (unsigned long)((uintptr_t)start - base),
           (unsigned long)((uintptr_t)end - base), (unsigned long)t->bytes);
    for (int i = 0; i < 40; i++)
        printf(" %lu", (unsigned long)t->objects_by_size[i]);
    printf("\n");
}

#define TELL(name) tell(#name, __start_site_##name, __stop_site_##name, &name##_truth)

int main(void)
{
    struct timespec pause = {
        .tv_nsec =
            /* If the program allocated faster, ebb would raise the sampling interval. */
        30000000};
    for (int i = 0; i < ROUNDS; i++) {
        small();
        medium();
        large();
        stepwise();
        shrunk();
        aligned();
        halved();
        remapped();
        churned();
        nanosleep(&pause, NULL);
    }
    dl_iterate_phdr(note_base, NULL);
    TELL(small);
    TELL(medium);
    TELL(large);
    TELL(stepwise);
    TELL(shrunk);
    TELL(aligned);
    TELL(halved);
    TELL(remapped);
    TELL(churned);
    fflush(stdout);
    _exit(0);
}
