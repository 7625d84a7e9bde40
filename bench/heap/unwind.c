/* Measures the cost of unwinding a native stack in ns per frame. Three variants unwind the same
 * stack in turn: ebb's own unwinder with cached rules, the same without them, and backtrace(),
 * which uses gcc's unwinder.
 *
 *   unwind [DEPTH] [ROUNDS] */
#include <execinfo.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "heap/modules.h"
#include "heap/unwind.h"

enum { WALKS = 200 };

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

struct figures {
    int rounds;
    size_t own_frames, gcc_frames;
    bool is_whole;
    double *warm, *cold, *gcc; /* Nanoseconds per unwound stack in each round. */
};

static double walk_ns(struct figures *f, bool is_cold)
{
    struct unwind_frame frames[HEAP_STACK_MAX];
    int walks = is_cold ? 1 : WALKS;

    if (is_cold)
        modules_changed();
    uint64_t start = heap_clock_ns();
    for (int i = 0; i < walks; i++)
        f->own_frames = unwind_here(frames, HEAP_STACK_MAX, &f->is_whole);
    return (double)(heap_clock_ns() - start) / walks;
}

static double gcc_ns(struct figures *f)
{
    void *frames[HEAP_STACK_MAX];
    uint64_t start = heap_clock_ns();

    for (int i = 0; i < WALKS; i++)
        f->gcc_frames = (size_t)backtrace(frames, HEAP_STACK_MAX);
    return (double)(heap_clock_ns() - start) / WALKS;
}

static void measure(struct figures *f)
{
    for (int i = 0; i < f->rounds; i++) {
        f->cold[i] = walk_ns(f, true);
        f->warm[i] = walk_ns(f, false);
        f->gcc[i] = gcc_ns(f);
    }
}

__attribute__((noinline)) static void descend(int depth, struct figures *f)
{
    volatile char *room = __builtin_alloca((size_t)(depth % 5) * 24 + 1);

    room[0] = 1;
    if (depth > 0)
        descend(depth - 1, f);
    else
        measure(f);
    room[0] = 2;
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(*values), compare_doubles);
    return values[n / 2];
}

int main(int argc, char **argv)
{
    int depth = argc > 1 ? atoi(argv[1]) : 48, rounds = argc > 2 ? atoi(argv[2]) : 200;
    struct figures f = {.rounds = rounds < 1 ? 1 : rounds};
    size_t bytes = (size_t)f.rounds * sizeof(double);

    f.warm = malloc(bytes);
    f.cold = malloc(bytes);
    f.gcc = malloc(bytes);
    heap_process.table = mmap(NULL, sizeof(struct heap_table), PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!f.warm || !f.cold || !f.gcc || heap_process.table == MAP_FAILED)
        return 1;
    modules_reset();
    descend(depth, &f);
    double warm = median(f.warm, f.rounds), cold = median(f.cold, f.rounds);
    double gcc = median(f.gcc, f.rounds);
    printf("frames: own %zu%s, backtrace() %zu\n", f.own_frames, f.is_whole ? "" : " (not whole)",
           f.gcc_frames);
    printf("own, rules kept     %9.0f ns  %6.1f ns a frame\n", warm, warm / (double)f.own_frames);
    printf("own, after dlclose  %9.0f ns  %6.1f ns a frame\n", cold, cold / (double)f.own_frames);
    printf("backtrace()         %9.0f ns  %6.1f ns a frame  (%.0f times the first)\n", gcc,
           gcc / (double)f.gcc_frames, gcc / warm);
    free(f.warm);
    free(f.cold);
    free(f.gcc);
    return 0;
}
