/* Measures the CPU time that the supervisor needs to read a full heap table: 32 K live samples of
 * 2,000 sites, with the names and stacks of a large program. Also measures the file size and the
 * memory used. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/clock.h"
#include "profile/store.h"

enum { SITES = 2000, NODES = 20000, CODES = 3000, TEXT = 600 * 1000, ROUNDS = 200 };

static uint64_t random_state = 42;

static uint32_t random_below(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(random_state >> 33) % n;
}

static void fill_live(struct heap_table *t, uint32_t i, uint32_t born_ms)
{
    struct heap_live *e = &t->live[i];
    e->ptr = 0;
    e->size = 16U << random_below(18);
    e->site = 1 + random_below(random_below(SITES - 1) + 1);
    e->born_ms = born_ms;
    e->interval = (512 << 10) / 64;
    e->kind_turn = random_below(HEAP_KINDS) | 1U << 4;
    e->ptr = 0x1000 + i;
    t->sites[e->site].allocated_bytes += 1 << 20;
    t->sites[e->site].allocated_objects_x16 += 16;
}

static void fill(struct heap_table *t)
{
    struct heap_header *h = &t->header;
    memcpy(h->magic, HEAP_TABLE_MAGIC, sizeof h->magic);
    h->version = HEAP_TABLE_VERSION;
    h->table_bytes = sizeof *t;
    h->start_ns = NS_PER_S;
    for (uint32_t i = 0; i < TEXT; i++)
        t->text[i] = (char)('a' + random_below(26) % (1 + i % 7));
    for (uint32_t i = 0; i < CODES; i++)
        t->codes[i] = (struct heap_code){.file = {random_below(TEXT - 60), 60},
                                         .name = {random_below(TEXT - 20), 20},
                                         .lines = {random_below(TEXT - 100), 100}};
    for (uint32_t i = 1; i < NODES; i++) {
        t->nodes[i].frame = HEAP_FRAME_PYTHON |
                            (uint64_t)random_below(CODES) << HEAP_FRAME_CODE_SHIFT |
                            random_below(500);
        t->nodes[i].parent = i > 50 ? i - 1 - random_below(50) : 0;
    }
    for (uint32_t i = 1; i < SITES; i++)
        t->sites[i].node = random_below(NODES);
    for (uint32_t i = 0; i < HEAP_LIVE; i++)
        fill_live(t, i, random_below(1000));
    h->codes = CODES;
    h->nodes = NODES;
    h->sites = SITES;
    h->live_high = HEAP_LIVE;
    h->text_bytes = TEXT;
}

static int compare_u64(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void print_times(const char *what, uint64_t *ns, size_t count)
{
    qsort(ns, count, sizeof *ns, compare_u64);
    printf("%-44s median %6.3f ms, 99 %% %6.3f ms\n", what, (double)ns[count / 2] / 1e6,
           (double)ns[count * 99 / 100] / 1e6);
}

static long own_kb(const char *key)
{
    char line[256];
    long kb = -1;
    FILE *f = fopen("/proc/self/status", "re");
    while (f && kb < 0 && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0)
            kb = strtol(line + strlen(key), NULL, 10);
    if (f)
        fclose(f);
    return kb;
}

static void measure_live(const struct live_table *table)
{
    uint64_t ns[ROUNDS];
    struct live_samples live = {0};
    double bytes = 0;
    for (unsigned i = 0; i < ROUNDS; i++) {
        uint64_t begin = clock_thread_cpu_ns();
        if (live_table_read(table, &live) < 0)
            exit(1);
        ns[i] = clock_thread_cpu_ns() - begin;
    }
    print_times("live_table_read, 32,768 samples", ns, ROUNDS);
    for (size_t i = 0; i < live.count; i++)
        bytes += profile_weight_bytes(live.samples[i].size, live.samples[i].interval);
    printf("%-44s %.0f MiB in %zu samples\n", "  they stand for", bytes / (1 << 20), live.count);
    live_samples_fini(&live);
}

/* Between two reads of the table, 400 samples end and 400 begin, as with 200 new samples per second
 * and a read every 2 s. */
static void measure_store(struct heap_table *t, const struct live_table *table,
                          struct store_writer *w)
{
    uint64_t ns[ROUNDS];
    double live;
    uint64_t now = 3 * NS_PER_S, begin = clock_thread_cpu_ns();
    store_take(w, now, true, 0, STORE_DUE, &live);
    uint64_t first = store_size_bytes(w);
    printf("%-44s %.3f ms, %.0f KiB in the file\n", "first reading: names, stacks, snapshot",
           (double)(clock_thread_cpu_ns() - begin) / 1e6, (double)first / 1024);
    for (unsigned i = 0; i < ROUNDS; i++) {
        for (unsigned k = 0; k < 400; k++)
            fill_live(t, random_below(HEAP_LIVE), (uint32_t)(now / NS_PER_MS) - 1000);
        live_table_rest(table);
        now += 2 * NS_PER_S;
        begin = clock_thread_cpu_ns();
        store_take(w, now, true, i + 1, STORE_DUE, &live);
        ns[i] = clock_thread_cpu_ns() - begin;
    }
    print_times("later readings, 400 samples changed", ns, ROUNDS);
    printf("%-44s %.0f KiB for %d readings and their snapshots\n", "  in the file",
           (double)(store_size_bytes(w) - first) / 1024, ROUNDS);
    now += 1000 * NS_PER_S;
    uint64_t before = store_size_bytes(w);
    begin = clock_thread_cpu_ns();
    store_take(w, now, true, ROUNDS, STORE_LAST, &live);
    printf("%-44s %.3f ms, %.0f KiB in the file\n", "last reading with its snapshot",
           (double)(clock_thread_cpu_ns() - begin) / 1e6,
           (double)(store_size_bytes(w) - before) / 1024);
}

int main(void)
{
    struct live_table table;
    struct store_writer *w;
    int fd = memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, sizeof(struct heap_table)) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        return 1;
    struct heap_table *t = mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (t == MAP_FAILED)
        return 1;
    fill(t);
    if (live_table_open(fd, getpid(), &table, NULL) < 0)
        return 1;
    long anon_kb = own_kb("RssAnon:");
    measure_live(&table);
    unlink("/tmp/ebb-bench.ebbheap");
    if (store_create(AT_FDCWD, "/tmp/ebb-bench.ebbheap", &table, &w, NULL) < 0)
        return 1;
    measure_store(t, &table, w);
    store_flush(w, 10 * NS_PER_S);
    printf("%-44s +%ld KiB\n", "anonymous memory, one process followed",
           own_kb("RssAnon:") - anon_kb);
    int rc = store_writer_close(w, 10 * NS_PER_S);
    unlink("/tmp/ebb-bench.ebbheap");
    live_table_close(&table);
    return rc == 0 ? 0 : 1;
}
