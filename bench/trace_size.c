/* Measures the size of a recording, the speed of reading it, and the cost of the writer.
 *
 * The simulated job has realistic noise: every active process changes by up to ±0.1 % of its
 * resident pages at each tick, independently; the machine's figures change every time; the clock
 * of the ticks has 50 µs of jitter. Time is virtual.
 *
 * Prints two lines of text per job, then one line of JSON for run.py. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "trace/reader.h"
#include "trace/writer.h"

#define PAGE UINT64_C(4096)
#define GIB (UINT64_C(1) << 30)
#define MIB (UINT64_C(1) << 20)

static uint64_t seed = 88172645463325252u;

static uint64_t random_u64(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* Returns a number uniformly distributed in [-range, range]. */
static int64_t noise(uint64_t range)
{
    return (int64_t)(random_u64() % (2 * range + 1)) - (int64_t)range;
}

struct job_process {
    uint64_t base_pages, rss_pages, anon_pages, file_pages, peak_pages;
    uint64_t saw_pages; /* Maximum additional memory within a training step, in pages. */
    bool active;
};

struct scenario {
    const char *name;
    unsigned processes;
    unsigned ticks;
    uint64_t interval_ns;
    unsigned status_every, unique_every; /* intervals in ticks */
};

static void make_process(struct job_process *p, unsigned i)
{
    /* The processes are one trainer, one launcher, four data workers and, for the rest, compile
     * workers. */
    unsigned role = i % 25;
    uint64_t bytes = role == 0   ? 9 * GIB
                     : role == 1 ? 40 * MIB
                     : role < 6  ? 3 * GIB / 2
                                 : 620 * MIB + (i % 7) * MIB;
    *p = (struct job_process){.base_pages = bytes / PAGE,
                              .active = role == 0 || (role > 1 && role < 6)};
    p->saw_pages = role == 0 ? 400 * MIB / PAGE : 0;
    p->file_pages = 180 * MIB / PAGE;
}

static void move(struct job_process *p, unsigned tick)
{
    int64_t pages = (int64_t)p->base_pages;
    if (p->active)
        pages += noise(p->base_pages / 1000) + (int64_t)(p->saw_pages * (tick % 7) / 7);
    else if (random_u64() % 600 == 0)
        p->base_pages += random_u64() % 5;
    p->rss_pages = (uint64_t)pages;
    p->anon_pages = p->rss_pages - p->rss_pages / 10;
    if (p->rss_pages > p->peak_pages)
        p->peak_pages = p->rss_pages;
}

static void write_process(struct trace_writer *w, const struct scenario *s, unsigned i,
                          const struct job_process *p, unsigned tick)
{
    struct sample sample = {0};
    sample_put(&sample, SAMPLE_RSS, p->rss_pages * PAGE);
    if ((tick + i) % s->status_every == 0) {
        sample_put(&sample, SAMPLE_ANON, p->anon_pages * PAGE);
        sample_put(&sample, SAMPLE_FILE, p->file_pages * PAGE);
        sample_put(&sample, SAMPLE_SHMEM, 16 * MIB);
        sample_put(&sample, SAMPLE_SWAP, 0);
        sample_put(&sample, SAMPLE_PEAK, p->peak_pages * PAGE);
    }
    if ((tick + i) % s->unique_every == 0)
        sample_put(&sample, SAMPLE_UNIQUE, (p->anon_pages - p->anon_pages / 8) * PAGE);
    trace_writer_sample(w, ENTITY_PROCESS, i, &sample);
}

static void write_machine(struct trace_writer *w, const struct job_process *p, unsigned n)
{
    struct sample m = {0};
    uint64_t low = 0, high = 0, kib = 1024;
    for (unsigned i = 0; i < n; i++) {
        low += (p[i].anon_pages - p[i].anon_pages / 8) * PAGE;
        high += p[i].rss_pages * PAGE;
    }
    sample_put(&m, MACHINE_TOTAL, 256 * GIB);
    sample_put(&m, MACHINE_AVAILABLE, 200 * GIB - low + (uint64_t)noise(20000) * kib);
    sample_put(&m, MACHINE_SWAP_TOTAL, 0);
    sample_put(&m, MACHINE_SWAP_FREE, 0);
    sample_put(&m, MACHINE_ANON_PAGES, low + 2 * GIB + (uint64_t)noise(4000) * kib);
    sample_put(&m, MACHINE_SHMEM, 300 * MIB);
    sample_put(&m, MACHINE_PSI_SOME, random_u64() % 10 == 0 ? random_u64() % 50 : 0);
    sample_put(&m, MACHINE_PSI_FULL, 0);
    sample_put(&m, MACHINE_LIMIT, 128 * GIB);
    sample_put(&m, MACHINE_LIMIT_USED, low + (uint64_t)noise(1000) * PAGE);
    sample_put(&m, MACHINE_LIMIT_PEAK, 40 * GIB);
    sample_put(&m, MACHINE_TREE_LOW, low);
    sample_put(&m, MACHINE_TREE_HIGH, high);
    trace_writer_sample(w, ENTITY_MACHINE, 0, &m);
}

static void write_births(struct trace_writer *w, uint64_t t, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct process_info info = {.id = {(int32_t)(1000 + i), 123456 + i}, .ppid = 999};
        info.comm_len = (uint16_t)snprintf(info.comm, sizeof info.comm, "pt_data_worker");
        info.cmdline_len = (uint16_t)snprintf(info.cmdline, sizeof info.cmdline,
                                              "/usr/bin/python3 -c worker --rank %u --spawn", i);
        trace_writer_process(w, t, PROCESS_BORN, i, &info);
    }
}

static int fill(struct trace_writer *w, const struct scenario *s)
{
    struct job_process *p = calloc(s->processes, sizeof *p);
    if (!p)
        return -ENOMEM;
    uint64_t t0 = 5000 * NS_PER_S;
    for (unsigned i = 0; i < s->processes; i++)
        make_process(&p[i], i);
    write_births(w, t0, s->processes);
    for (unsigned tick = 0; tick < s->ticks; tick++) {
        uint64_t t = t0 + tick * s->interval_ns + random_u64() % (50 * NS_PER_US);
        trace_writer_tick_begin(w, t);
        for (unsigned i = 0; i < s->processes; i++) {
            move(&p[i], tick);
            write_process(w, s, i, &p[i], tick);
        }
        write_machine(w, p, s->processes);
        trace_writer_tick_end(w);
        trace_writer_flush(w, t, false);
    }
    free(p);
    return 0;
}

static uint64_t read_back(const char *path, uint64_t *ret_rows, uint64_t *ret_wall_ns)
{
    struct trace_reader *r;
    struct trace_item item;
    struct err err;
    uint64_t cpu = clock_thread_cpu_ns(), wall = clock_mono_ns();
    *ret_rows = 0;
    if (trace_reader_open(path, &r, &err) < 0) {
        fprintf(stderr, "trace_size: %s\n", err.text);
        exit(1);
    }
    while (trace_reader_next(r, &item) > 0)
        if (item.kind == TRACE_TICK)
            *ret_rows += item.tick.count;
    trace_reader_free(r);
    *ret_wall_ns = clock_mono_ns() - wall;
    return clock_thread_cpu_ns() - cpu;
}

static long max_rss_kib(void)
{
    struct rusage ru;
    getrusage(RUSAGE_SELF, &ru);
    return ru.ru_maxrss;
}

static void run(const struct scenario *s)
{
    char path[] = "/tmp/ebb-trace-size-XXXXXX";
    int fd = mkstemp(path);
    if (fd < 0)
        exit(1);
    close(fd);
    unlink(path);
    struct trace_writer_options options = {.patient = true};
    struct trace_writer *w;
    struct trace_writer_status status;
    struct err err;
    long before = max_rss_kib();
    uint64_t cpu = clock_thread_cpu_ns();
    if (trace_writer_new(AT_FDCWD, path, NULL, &options, &w, &err) < 0 || fill(w, s) < 0) {
        fprintf(stderr, "trace_size: cannot write %s\n", path);
        exit(1);
    }
    trace_writer_status(w, &status);
    long after = max_rss_kib();
    trace_writer_close(w, NULL, UINT64_MAX);
    cpu = clock_thread_cpu_ns() - cpu;
    fd = open(path, O_RDONLY | O_CLOEXEC);
    off_t bytes = lseek(fd, 0, SEEK_END);
    close(fd);
    uint64_t rows, wall_ns, read_ns = read_back(path, &rows, &wall_ns);
    unlink(path);
    double samples = (double)s->processes * s->ticks;
    printf("%-34s %9lld bytes  %.2f B per process and sample  %.2f B per reading\n", s->name,
           (long long)bytes, (double)bytes / samples, (double)bytes / (double)status.cells);
    printf("%-34s written: %.2f us a tick, +%ld KiB resident; read back: %.3f s CPU, %llu rows\n",
           "", (double)cpu / 1e3 / s->ticks, after - before, (double)read_ns / 1e9,
           (unsigned long long)rows);
    printf("{\"name\": \"%s\", \"bytes\": %lld, \"bytes_per_sample\": %.3f, \"tick_us\": %.2f, "
           "\"read_cpu_s\": %.4f, \"read_wall_s\": %.4f, \"rows\": %llu}\n",
           s->name, (long long)bytes, (double)bytes / samples, (double)cpu / 1e3 / s->ticks,
           (double)read_ns / 1e9, (double)wall_ns / 1e9, (unsigned long long)rows);
}

int main(void)
{
    static const struct scenario scenarios[] = {
        {"600 s at 10 Hz of 100 processes", 100, 6000, NS_PER_S / 10, 50, 100},
        {"24 h at 1 Hz of 25 processes", 25, 86400, NS_PER_S, 5, 10},
    };
    for (size_t i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        run(&scenarios[i]);
    return 0;
}
