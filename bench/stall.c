/* Measures how long sampling delays a job. A child holds N GiB of 4 KiB pages and maps, touches and
 * unmaps memory in a loop, timing each round. Meanwhile this process either does nothing, samples
 * as ebb does (tick every second, status every 5 s, unique memory with the default share of a CPU,
 * one scan after another), samples unique memory at full speed, or reads smaps_rollup every second.
 * Blocks of these four ways alternate, so that drift affects all of them equally.
 *
 * On a busy machine, most long rounds wait for a CPU and not for a lock. The kernel counts the wait
 * for a CPU (schedstat). Every figure is therefore given twice: as measured, and without the wait
 * for a CPU ("locks").
 *
 *   stall [GIB [BLOCKS [BLOCK_MS]]]        defaults: 8 10 2000
 *
 * Prints a table, then one line of JSON for run.py. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "proc/procfs.h"
#include "proc/tree.h"
#include "proc/unique.h"

/* Between two blocks, no samples are taken, and rounds are not counted. */
enum look { LOOK_NONE, LOOK_EBB, LOOK_EBB_FLAT_OUT, LOOK_ROLLUP, LOOKS, LOOK_BETWEEN = LOOKS };
static const char *const look_names[LOOKS] = {"nothing", "ebb", "ebb flat out", "smaps_rollup"};

/* A histogram with 16 buckets for each power of two, so each latency is accurate within 6 %. */
enum { FINE_BITS = 4, BUCKETS = 64 << FINE_BITS, STEP_BYTES = 65536 };

enum kind { AS_IT_WAS, LOCKS, KINDS };
static const char *const kind_names[KINDS] = {"as it was", "locks"};

struct shared {
    _Atomic int look;
    _Atomic int ready;
    uint64_t count[KINDS][LOOKS + 1][BUCKETS]; /* Written only by the child process. */
    uint64_t max_ns[KINDS][LOOKS + 1];
};

static unsigned bucket_of(uint64_t ns)
{
    if (ns < 1u << FINE_BITS)
        return (unsigned)ns;
    unsigned shift = 63u - (unsigned)__builtin_clzll(ns) - FINE_BITS;
    return ((shift + 1) << FINE_BITS) + (unsigned)(ns >> shift & ((1u << FINE_BITS) - 1));
}

static uint64_t bucket_top_ns(unsigned b)
{
    if (b < 1u << FINE_BITS)
        return b;
    unsigned shift = (b >> FINE_BITS) - 1;
    return ((uint64_t)(b & ((1u << FINE_BITS) - 1)) + (1u << FINE_BITS) + 1) << shift;
}

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void fill(size_t gib)
{
    size_t bytes = gib << 30;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        _exit(3);
    madvise(memory, bytes, MADV_NOHUGEPAGE);
    for (size_t i = 0; i < bytes; i += 4096)
        memory[i] = 1;
}

/* Returns the total time for which this thread has waited for a CPU, or 0 if the kernel does not
 * record it. */
static uint64_t queued_ns(int fd)
{
    char text[128];
    unsigned long long ran, queued;
    ssize_t len = fd < 0 ? -1 : pread(fd, text, sizeof(text) - 1, 0);
    if (len <= 0)
        return 0;
    text[len] = '\0';
    return sscanf(text, "%llu %llu", &ran, &queued) == 2 ? queued : 0;
}

static void count_round(struct shared *sh, enum kind kind, int look, uint64_t ns)
{
    sh->count[kind][look][bucket_of(ns)]++;
    if (ns > sh->max_ns[kind][look])
        sh->max_ns[kind][look] = ns;
}

static void do_round(void)
{
    char *p = mmap(NULL, STEP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        _exit(4);
    *p = 1;
    munmap(p, STEP_BYTES);
}

static void run_job(struct shared *sh, size_t gib)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    fill(gib);
    int fd = open("/proc/self/schedstat", O_RDONLY | O_CLOEXEC);
    uint64_t queued_before = queued_ns(fd), asked_ns = clock_mono_ns();
    sh->ready = 1;
    for (;;) {
        int look = sh->look;
        uint64_t began = clock_mono_ns();
        do_round();
        uint64_t ended = clock_mono_ns(), took = ended - began, queued = 0;
        /* The CPU wait is read after every long round, and otherwise once per millisecond, so that
         * the waits of short rounds are not attributed to a long one. */
        if (took > 100 * NS_PER_US || ended - asked_ns > NS_PER_MS) {
            uint64_t now = queued_ns(fd);
            if (took > 100 * NS_PER_US)
                queued = min_u64(now - queued_before, took);
            queued_before = now;
            asked_ns = ended;
        }
        count_round(sh, AS_IT_WAS, look, took);
        count_round(sh, LOCKS, look, took - queued);
    }
}

static void sleep_until(uint64_t t_ns)
{
    struct timespec ts = {(time_t)(t_ns / NS_PER_S), (long)(t_ns % NS_PER_S)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
        ;
}

/* Samples as the engine does, except that the scans for unique memory follow one another without
 * a pause. */
static void look_with_ebb(struct proc_tree *tree, struct proc_unique *u, uint64_t until_ns)
{
    static uint64_t tick_ns, status_ns;
    for (uint64_t now = clock_mono_ns(); now < until_ns; now = clock_mono_ns()) {
        if (now >= tick_ns) {
            proc_tree_walk(tree, now);
            proc_tree_tick(tree, now);
            tick_ns = now + NS_PER_S;
        }
        if (now >= status_ns) {
            for (size_t i = 0; i < proc_tree_count(tree); i++)
                proc_node_read_status(tree, proc_tree_at(tree, i));
            status_ns = now + 5 * NS_PER_S;
        }
        uint64_t unique_ns = until_ns;
        unique_ns = proc_unique_slice(u, now);
        sleep_until(min_u64(min_u64(tick_ns, status_ns), min_u64(unique_ns, until_ns)));
    }
}

static void look_with_rollup(pid_t pid, uint64_t until_ns)
{
    char path[64], text[4096];
    snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", (int)pid);
    while (clock_mono_ns() < until_ns) {
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0 || read(fd, text, sizeof(text)) < 0)
            perror(path);
        if (fd >= 0)
            close(fd);
        sleep_until(min_u64(clock_mono_ns() + NS_PER_S, until_ns));
    }
}

/* Quantiles over rounds hide stalls: the job makes a hundred thousand rounds per second, and a
 * stall of 100 ms delays only one of them. Quantiles over time weight each round by its duration
 * ("how long is the round that is in progress at a random moment?"). */
static double weight_of(const uint64_t *count, unsigned b, bool by_time)
{
    return (double)count[b] * (by_time ? (double)bucket_top_ns(b) : 1.0);
}

static double quantile_us(const uint64_t *count, double q, bool by_time)
{
    double total = 0, seen = 0;
    for (unsigned b = 0; b < BUCKETS; b++)
        total += weight_of(count, b, by_time);
    for (unsigned b = 0; b < BUCKETS; b++) {
        seen += weight_of(count, b, by_time);
        if (seen > 0 && seen >= q * total)
            return (double)bucket_top_ns(b) / 1e3;
    }
    return 0;
}

static const struct column {
    const char *name;
    double q;
    bool by_time;
} columns[] = {{"p50", 0.5, false},       {"p99", 0.99, false},     {"p99.9", 0.999, false},
               {"p99.99", 0.9999, false}, {"time p99", 0.99, true}, {"time p99.9", 0.999, true}};
enum { COLUMNS = sizeof(columns) / sizeof(columns[0]) };

static double cell_us(const struct shared *sh, enum kind kind, int look, int c)
{
    return quantile_us(sh->count[kind][look], columns[c].q, columns[c].by_time);
}

static void report(const struct shared *sh, enum kind kind)
{
    printf("microseconds, %-9s", kind_names[kind]);
    for (int c = 0; c < COLUMNS; c++)
        printf(" %10s", columns[c].name);
    printf(" %10s %10s\n", "max", "rounds");
    for (int look = 0; look < LOOKS; look++) {
        uint64_t rounds = 0;
        for (unsigned b = 0; b < BUCKETS; b++)
            rounds += sh->count[kind][look][b];
        printf("%-23s", look_names[look]);
        for (int c = 0; c < COLUMNS; c++)
            printf(" %10.1f", cell_us(sh, kind, look, c));
        printf(" %10.1f %10llu\n", (double)sh->max_ns[kind][look] / 1e3,
               (unsigned long long)rounds);
    }
}

static void report_json(const struct shared *sh, int gib)
{
    printf("{\"gib\": %d", gib);
    for (enum kind kind = 0; kind < KINDS; kind++) {
        printf(", \"%s\": {", kind_names[kind]);
        for (int look = 0; look < LOOKS; look++) {
            printf("%s\"%s\": {\"max\": %.1f", look > 0 ? ", " : "", look_names[look],
                   (double)sh->max_ns[kind][look] / 1e3);
            for (int c = 0; c < COLUMNS; c++)
                printf(", \"%s\": %.1f", columns[c].name, cell_us(sh, kind, look, c));
            putchar('}');
        }
        putchar('}');
    }
    puts("}");
}

static void report_cost(const char *name, const struct proc_unique *u)
{
    struct proc_unique_cost c;
    proc_unique_cost(u, &c);
    printf("%s: %llu scans, %.1f ms of CPU each, %llu slices, longest call %.3f ms\n", name,
           (unsigned long long)c.scans_done,
           c.scans_done > 0 ? (double)c.cpu_ns / 1e6 / (double)c.scans_done : 0.0,
           (unsigned long long)c.slices, (double)c.longest_call_ns / 1e6);
}

static void wait_until_filled(const struct shared *sh, pid_t job)
{
    while (!sh->ready) {
        if (waitpid(job, NULL, WNOHANG) != 0) {
            fputs("stall: the job died; is there that much memory?\n", stderr);
            exit(1);
        }
        nanosleep(&(struct timespec){0, 50000000}, NULL);
    }
}

static int measure(struct shared *sh, pid_t job, int gib, int blocks, uint64_t block_ns)
{
    struct proc_root root;
    struct proc_tree *tree;
    struct proc_unique *paced, *flat_out;
    const struct proc_unique_options always = {.period_ns = 1};
    const struct proc_unique_options fast = {.period_ns = 1, .cpu_permyriad = 10000};
    if (proc_root_open("/proc", NULL, &root, NULL) < 0 ||
        proc_tree_new(&root, NULL, NULL, &tree) < 0 || proc_unique_new(tree, &always, &paced) < 0 ||
        proc_unique_new(tree, &fast, &flat_out) < 0 ||
        proc_tree_add(tree, job, clock_mono_ns(), NULL) < 0)
        return 1;
    for (int i = 0; i < blocks * LOOKS; i++) {
        int look = i % LOOKS;
        sh->look = look;
        uint64_t until_ns = clock_mono_ns() + block_ns;
        if (look == LOOK_NONE)
            sleep_until(until_ns);
        else if (look == LOOK_ROLLUP)
            look_with_rollup(job, until_ns);
        else
            look_with_ebb(tree, look == LOOK_EBB ? paced : flat_out, until_ns);
        sh->look = LOOK_BETWEEN;
        sleep_until(clock_mono_ns() + 20 * NS_PER_MS);
    }
    report(sh, AS_IT_WAS);
    report(sh, LOCKS);
    report_cost("ebb", paced);
    report_cost("ebb flat out", flat_out);
    report_json(sh, gib);
    proc_unique_free(paced);
    proc_unique_free(flat_out);
    proc_tree_free(tree);
    proc_root_close(&root);
    return 0;
}

int main(int argc, char **argv)
{
    int gib = argc > 1 ? atoi(argv[1]) : 8;
    int blocks = argc > 2 ? atoi(argv[2]) : 10;
    int block_ms = argc > 3 ? atoi(argv[3]) : 2000;
    if (gib <= 0 || blocks <= 0 || block_ms <= 0) {
        fputs("usage: stall [GIB [BLOCKS [BLOCK_MS]]]\n", stderr);
        return 2;
    }
    struct shared *sh = mmap(NULL, sizeof(*sh), PROT_READ | PROT_WRITE,
                             MAP_SHARED | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
    if (sh == MAP_FAILED)
        return 1;
    pid_t job = fork();
    if (job == 0)
        run_job(sh, (size_t)gib);
    wait_until_filled(sh, job);
    printf("%d GiB of 4 KiB pages, %d blocks of %d ms of each kind\n", gib, blocks, block_ms);
    int r = measure(sh, job, gib, blocks, (uint64_t)block_ms * NS_PER_MS);
    kill(job, SIGKILL);
    waitpid(job, NULL, 0);
    return r;
}
