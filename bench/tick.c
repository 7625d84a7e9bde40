/* Measures the CPU time of one tick, which reads the resident memory of a tree of 21 processes with
 * pread on open descriptors. Also measures three parts separately: the scan for new and exited
 * processes, the status files, and the parsing. Prints medians as JSON.
 *
 *   tick [PROCESSES [ROUNDS]]        defaults: 21 1000
 *   tick --hold [PROCESSES]          prints the pid of such a tree and keeps it until stdin ends,
 *                                    so that psutil can be measured on the same tree */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "proc/procfs.h"
#include "proc/tree.h"

enum { ROUNDS_MAX = 100000, TOUCHED_BYTES = 8 << 20 };

/* CPU time is independent of other work on a busy machine, unlike wall time. */
static uint64_t cpu_ns(void)
{
    return clock_thread_cpu_ns();
}

static void become_job(int processes)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char *memory =
        mmap(NULL, TOUCHED_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory != MAP_FAILED)
        memset(memory, 1, TOUCHED_BYTES);
    for (int i = 1; i < processes; i++)
        if (fork() == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            for (;;)
                pause();
        }
    for (;;)
        pause();
}

static pid_t start_job(int processes)
{
    pid_t pid = fork();
    if (pid == 0)
        become_job(processes);
    return pid;
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static double median_us(uint64_t *ns, size_t count)
{
    qsort(ns, count, sizeof(*ns), by_value);
    return (double)ns[count / 2] / 1e3;
}

static void wait_for_tree(struct proc_tree *tree, size_t processes)
{
    for (int i = 0; i < 1000 && proc_tree_count(tree) < processes; i++) {
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        proc_tree_walk(tree, clock_mono_ns());
    }
}

static double parse_ns(void)
{
    static const char text[] = "1184327 524288 1220 2 0 530000 0\n";
    uint64_t pages = 0;
    enum { TIMES = 1000000 };
    uint64_t began = cpu_ns();
    for (int i = 0; i < TIMES; i++) {
        struct proc_statm m;
        if (proc_statm_parse(text, sizeof(text) - 1, &m) == 0)
            pages += m.rss_pages;
    }
    uint64_t took = cpu_ns() - began;
    /* The sum keeps the compiler from removing the loop. */
    return pages == 0 ? 0 : (double)took / TIMES;
}

typedef void look_fn(struct proc_tree *tree);

static void look_tick(struct proc_tree *tree)
{
    proc_tree_tick(tree, clock_mono_ns());
}

static void look_walk(struct proc_tree *tree)
{
    proc_tree_walk(tree, clock_mono_ns());
}

static void look_status(struct proc_tree *tree)
{
    for (size_t i = 0; i < proc_tree_count(tree); i++)
        proc_node_read_status(tree, proc_tree_at(tree, i));
}

static void look_memory(struct proc_tree *tree)
{
    struct proc_tree_memory m;
    proc_tree_memory(tree, &m);
}

static double measure_us(struct proc_tree *tree, look_fn *look, size_t rounds)
{
    static uint64_t ns[ROUNDS_MAX];
    for (size_t i = 0; i < rounds; i++) {
        uint64_t began = cpu_ns();
        look(tree);
        ns[i] = cpu_ns() - began;
    }
    return median_us(ns, rounds);
}

static int run(int processes, size_t rounds)
{
    struct proc_root root;
    struct proc_tree *tree;
    struct rlimit old;
    if (proc_raise_nofile(&old) < 0 || proc_root_open("/proc", NULL, &root, NULL) < 0 ||
        proc_tree_new(&root, NULL, NULL, &tree) < 0)
        return 1;
    pid_t job = start_job(processes);
    if (job < 0 || proc_tree_add(tree, job, clock_mono_ns(), NULL) < 0)
        return 1;
    wait_for_tree(tree, (size_t)processes);
    /* On some machines, reading the clock is a system call, so the cost of reading it is printed as
     * well. */
    uint64_t began = cpu_ns();
    for (int i = 0; i < 1000; i++)
        cpu_ns();
    double clock_us = (double)(cpu_ns() - began) / 1e6;
    measure_us(tree, look_tick, rounds / 10 + 1); /* warm */
    printf("{\"processes\": %zu, \"rounds\": %zu, \"tick_us\": %.2f, \"walk_us\": %.2f, "
           "\"status_us\": %.2f, \"memory_us\": %.2f, \"parse_statm_ns\": %.1f, "
           "\"clock_us\": %.2f}\n",
           proc_tree_count(tree), rounds, measure_us(tree, look_tick, rounds),
           measure_us(tree, look_walk, rounds), measure_us(tree, look_status, rounds),
           measure_us(tree, look_memory, rounds), parse_ns(), clock_us);
    proc_tree_free(tree);
    proc_root_close(&root);
    kill(job, SIGKILL);
    waitpid(job, NULL, 0);
    return 0;
}

static int hold(int processes)
{
    pid_t job = start_job(processes);
    if (job < 0)
        return 1;
    printf("%d\n", (int)job);
    fflush(stdout);
    while (getchar() != EOF)
        ;
    kill(job, SIGKILL);
    waitpid(job, NULL, 0);
    return 0;
}

static int number(int argc, char **argv, int i, int fallback, int max)
{
    int n = argc > i ? atoi(argv[i]) : fallback;
    if (n < 1 || n > max) {
        fprintf(stderr, "tick: %s is not a number from 1 to %d\n", argv[i], max);
        exit(2);
    }
    return n;
}

int main(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "--hold") == 0)
        return hold(number(argc, argv, 2, 21, 5000));
    return run(number(argc, argv, 1, 21, 5000), (size_t)number(argc, argv, 2, 1000, ROUNDS_MAX));
}
