/* gpus LIBRARY WAY: uses a fake libc10_cuda.so of PyTorch, loaded as Python loads the real one. WAY
 * is one of: hold N (keep N blocks); threads (each thread frees blocks of another thread); nonsense
 * (invalid reports); fork (forks while threads allocate); exit (exit handlers free blocks); unload
 * (unloads the library and loads it again); fail (requests fail); both LIBRARY2 (two copies in one
 * process); loading LIBRARY2 (its constructor waits for a block); failfork (requests of threads and
 * forked children fail). Prints the live bytes at the end, and how many reports reached the real
 * functions. */
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 8, BLOCKS = 4000, RING = 256, CUDA = 1 };
#define LARGE (INT64_C(512) << 20)

struct torch {
    void *handle;
    uint64_t (*malloc)(int64_t size, int gpu);
    void (*free)(uint64_t p, int64_t size, int gpu);
    void (*report)(uint64_t p, int64_t size, uint64_t allocated, uint64_t reserved, int type,
                   int gpu);
    void (*fail)(int64_t size, int gpu);
    uint64_t (*allocated)(int gpu);
    uint64_t (*blocks)(void);
    uint64_t (*failures)(void);
};

static struct torch torch;

static void *find(void *handle, const char *name)
{
    void *found = dlsym(handle, name);
    if (!found) {
        fprintf(stderr, "no %s\n", name);
        exit(2);
    }
    return found;
}

static void load(struct torch *t, const char *path)
{
    t->handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!t->handle) {
        fprintf(stderr, "%s\n", dlerror());
        exit(2);
    }
#define FIND(member, name) *(void **)&t->member = find(t->handle, name)
    FIND(malloc, "standin_malloc");
    FIND(free, "standin_free");
    FIND(report, "standin_report");
    FIND(fail, "standin_fail");
    FIND(allocated, "standin_allocated");
    FIND(blocks, "c10_blocks");
    FIND(failures, "c10_failures");
#undef FIND
}

static void hold(int n)
{
    for (int i = 0; i < n; i++)
        torch.malloc(LARGE, i % 2);
}

/* ---- threads that free each other's blocks ---- */

static _Atomic(uint64_t) ring[RING];

static void *churn(void *seed)
{
    uint64_t random = (uintptr_t)seed * 2654435761U + 1;
    for (int i = 0; i < BLOCKS; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407U;
        int64_t size = INT64_C(1) << 20;
        uint64_t mine = torch.malloc(size, 0);
        uint64_t other = atomic_exchange(&ring[random >> 56], mine);
        if (other)
            torch.free(other, size, 0);
    }
    return NULL;
}

static void threads(void)
{
    pthread_t at[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&at[i], NULL, churn, (void *)(i + 1));
    for (int i = 0; i < THREADS; i++)
        pthread_join(at[i], NULL);
}

/* ---- invalid reports ---- */

static void nonsense(void)
{
    const int gpus[] = {0, -1, 16, 99, 127, -128, 0};
    for (size_t i = 0; i < sizeof gpus / sizeof *gpus; i++) {
        torch.report(0x7f0012340000, LARGE, UINT64_MAX, UINT64_MAX - 5, CUDA, gpus[i]);
        torch.report(0x7f0012340000, -LARGE, (uint64_t)-LARGE, 0, CUDA, gpus[i]);
        torch.report(0, LARGE, 1, 1, CUDA, gpus[i]);
        torch.report(0x7f0012340000, 0, 1, 1, CUDA, gpus[i]);
        torch.report(0x7f0012340000, INT64_MIN, 0, 0, CUDA, gpus[i]);
        torch.report(UINT64_MAX, -1, 0, 0, CUDA, gpus[i]);
        torch.report(0x7f0099990000, -LARGE, 0, 0, CUDA, gpus[i]); /* never allocated */
        torch.fail(INT64_MIN, gpus[i]);
    }
    for (int type = -128; type < 128; type++)
        if (type != CUDA && type != 6)
            torch.report(0x7f0055550000, LARGE, 0, 0, type, 0);
    torch.report(0x7f0066660000, INT64_MAX, INT64_MAX, INT64_MAX, CUDA, 1);
    torch.report(0x7f0066660000, -INT64_MAX, 0, INT64_MAX, CUDA, 1);
    torch.report(0x7f0012340000, LARGE, LARGE, LARGE, CUDA, 0);
    /* The same address is allocated again, although its free was not reported. */
    torch.report(0x7f0012340000, LARGE, LARGE, LARGE, CUDA, 0);
}

/* ---- fork, exit, unload ---- */

static void forks(void)
{
    pthread_t at[THREADS];
    hold(4);
    for (uintptr_t i = 0; i < THREADS; i++)
        pthread_create(&at[i], NULL, churn, (void *)(i + 1));
    for (int i = 0; i < 20; i++) {
        pid_t pid = fork();
        if (pid == 0) { /* As in torch, a lock of the allocator may stay held in the child. */
            for (int k = 0; k < 100; k++)
                torch.report(0x7e0000000000 + (uint64_t)k * 4096, LARGE, LARGE, LARGE, CUDA, 0);
            _exit(0);
        }
        int status = 0;
        if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0) {
            fprintf(stderr, "child %d: status %d\n", i, status);
            exit(1);
        }
    }
    for (int i = 0; i < THREADS; i++)
        pthread_join(at[i], NULL);
}

static uint64_t late_block;

static void at_the_end(void)
{
    torch.free(late_block, LARGE, 0);
    torch.malloc(LARGE, 0);
    torch.fail(LARGE, 0);
}

__attribute__((destructor)) static void at_the_very_end(void)
{
    if (late_block)
        torch.report(0x7e0000001000, LARGE, LARGE, LARGE, CUDA, 0);
}

static void unload(const char *path)
{
    for (int i = 0; i < 10; i++) {
        hold(2);
        dlclose(torch.handle);
        load(&torch, path);
    }
}

/* ---- a library whose constructor waits for a GPU block ---- */

static void *load_other(void *path)
{
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        exit(2);
    return handle;
}

static void loading(char *path)
{
    pthread_t loader;
    int begun[2], done[2];
    char text[64], byte;
    if (pipe(begun) < 0 || pipe(done) < 0)
        exit(2);
    snprintf(text, sizeof text, "%d %d", begun[1], done[0]);
    setenv("WAITS", text, 1);
    pthread_create(&loader, NULL, load_other, path);
    if (read(begun[0], &byte, 1) != 1)
        exit(2);
    torch.malloc(LARGE, 0); /* At the first report the hook looks up the real function. */
    if (write(done[1], "", 1) != 1)
        exit(2);
    pthread_join(loader, NULL);
}

/* ---- failures during fork ---- */

static _Atomic(int) is_over;

static void *fail_on(void *unused)
{
    while (!is_over)
        torch.fail(LARGE, 0);
    return unused;
}

static void failures_and_forks(void)
{
    pthread_t at[2];
    hold(4);
    for (int i = 0; i < 2; i++)
        pthread_create(&at[i], NULL, fail_on, NULL);
    for (int i = 0; i < 20; i++) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) {
            torch.fail(LARGE, 0);
            _exit(0);
        }
        if (pid < 0 || waitpid(pid, &status, 0) < 0 || status != 0)
            exit(1);
    }
    is_over = 1;
    for (int i = 0; i < 2; i++)
        pthread_join(at[i], NULL);
}

static void both(const char *path)
{
    struct torch second;
    hold(3);
    load(&second, path);
    for (int i = 0; i < 5; i++)
        second.malloc(LARGE, 1);
    printf("second %" PRIu64 "\n", second.blocks());
}

int main(int argc, char **argv)
{
    const char *way = argc > 2 ? argv[2] : "";
    if (argc < 3)
        return 2;
    load(&torch, argv[1]);
    if (strcmp(way, "hold") == 0 && argc > 3)
        hold(atoi(argv[3]));
    else if (strcmp(way, "threads") == 0)
        threads();
    else if (strcmp(way, "nonsense") == 0)
        nonsense();
    else if (strcmp(way, "fork") == 0)
        forks();
    else if (strcmp(way, "unload") == 0)
        unload(argv[1]);
    else if (strcmp(way, "both") == 0 && argc > 3)
        both(argv[3]);
    else if (strcmp(way, "loading") == 0 && argc > 3)
        loading(argv[3]);
    else if (strcmp(way, "failfork") == 0)
        failures_and_forks();
    if (strcmp(way, "exit") == 0) {
        late_block = torch.malloc(LARGE, 0);
        atexit(at_the_end);
    }
    if (strcmp(way, "fail") == 0) {
        hold(3);
        for (int i = 0; i < 6; i++)
            torch.fail(LARGE << i, 0);
    }
    printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", torch.allocated(0) + torch.allocated(1),
           torch.blocks(), torch.failures());
    return 0;
}
