/* Listens to the probes of the preloaded library as a tracer would, in its own process: sets the
 * semaphores, puts a breakpoint instruction over each probe, and reads the arguments from the
 * registers. Takes four arguments, all of them addresses in the library's file: the probe alloc,
 * its semaphore, the probe free, and its semaphore. Prints the bytes allocated, the sums of the
 * samples' weights and of their squares, and how many samples were freed. */
#include <link.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { BLOCKS = 20000, BLOCK_BYTES = 1024, SAMPLES_MAX = 1 << 16 };

static uintptr_t library;
static uintptr_t alloc_at, free_at;
static uintptr_t live[SAMPLES_MAX];
static size_t samples, ends, unknown_ends, wrong_sizes;
static uint64_t weight;
static double
    squares; /* sum of the squared weights, which gives the variance of the sum of the weights */

static int find_library(struct dl_phdr_info *info, size_t size, void *ret)
{
    (void)size;
    (void)ret;
    if (strstr(info->dlpi_name, "libebb-heap.so"))
        library = info->dlpi_addr;
    return 0;
}

#ifdef __x86_64__
static void end_sample(uintptr_t p)
{
    for (size_t i = samples; i-- > 0;)
        if (live[i] == p) {
            live[i] = 0;
            ends++;
            return;
        }
    unknown_ends++;
}

static void on_trap(int signo, siginfo_t *info, void *context)
{
    const greg_t *r = ((const ucontext_t *)context)->uc_mcontext.gregs;
    uintptr_t at = (uintptr_t)r[REG_RIP] - 1;
    (void)signo;
    (void)info;
    if (at == free_at)
        end_sample((uintptr_t)r[REG_RDI]);
    if (at != alloc_at || samples == SAMPLES_MAX)
        return;
    live[samples++] = (uintptr_t)r[REG_RDI];
    wrong_sizes += r[REG_RSI] != BLOCK_BYTES;
    weight += (uint64_t)r[REG_RDX];
    squares += (double)r[REG_RDX] * (double)r[REG_RDX];
}

static void put_breakpoint(uintptr_t at)
{
    long page = sysconf(_SC_PAGESIZE);
    void *start = (void *)(at & ~((uintptr_t)page - 1));
    if (mprotect(start, (size_t)page, PROT_READ | PROT_WRITE | PROT_EXEC) != 0)
        abort();
    *(volatile uint8_t *)at = 0xcc;
}

static void listen_to_probes(void)
{
    struct sigaction action = {.sa_sigaction = on_trap, .sa_flags = SA_SIGINFO};
    sigaction(SIGTRAP, &action, NULL);
    put_breakpoint(alloc_at);
    put_breakpoint(free_at);
}
#else
static void listen_to_probes(void)
{
}
#endif

static void set_semaphores(char **arguments, uint16_t n)
{
    *(volatile uint16_t *)(library + strtoull(arguments[2], NULL, 0)) = n;
    *(volatile uint16_t *)(library + strtoull(arguments[4], NULL, 0)) = n;
}

int main(int argc, char **argv)
{
    static void *blocks[BLOCKS];
    dl_iterate_phdr(find_library, NULL);
    if (argc != 5 || !library)
        return 2;
    alloc_at = library + strtoull(argv[1], NULL, 0);
    free_at = library + strtoull(argv[3], NULL, 0);
    listen_to_probes();
    set_semaphores(argv, 1);
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(BLOCK_BYTES);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    set_semaphores(argv, 0);
    size_t before = samples;
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = malloc(BLOCK_BYTES);
    printf("%d %llu %.0f %zu %zu %zu %zu %zu\n", BLOCKS * BLOCK_BYTES, (unsigned long long)weight,
           squares, before, ends, unknown_ends, wrong_sizes, samples - before);
    return 0;
}
