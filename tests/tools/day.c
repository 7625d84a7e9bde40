/* Writes the recording of a simulated day with the same writers as `ebb run`. The job has eight
 * processes and four GPUs; the recording has every record type.
 *
 *   day FOLDER [TICKS]      FOLDER must not exist; TICKS is in seconds (default: 86,400) */
#include "day.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/io.h"
#include "trace/rundir.h"
#include "trace/writer.h"

enum {
    GPUS = 4,
    DATA_WORKERS = 4,
    COMPILE_WORKERS = 2,
    ALIVE = 2 + DATA_WORKERS + COMPILE_WORKERS
};
static const char *const figures[] = {"heap_live_bytes", "cuda_allocated_bytes",
                                      "cuda_reserved_bytes", "pinned_host_bytes", "tensor_bytes"};
enum { FIGURES = sizeof figures / sizeof *figures };

struct day {
    struct trace_writer *w;
    uint64_t seed;
    unsigned ticks, segment_ticks;
    uint32_t slot[ALIVE], slots, figure, segment;
    struct process_info info[ALIVE];
    uint64_t guard_acts;
};

static uint64_t random_below(struct day *d, uint64_t n)
{
    d->seed ^= d->seed << 13;
    d->seed ^= d->seed >> 7;
    d->seed ^= d->seed << 17;
    return d->seed % n;
}

static uint64_t at_ns(unsigned tick)
{
    return (DAY_START_S + tick) * NS_PER_S;
}

static int32_t main_pid(const struct day *d)
{
    return DAY_MAIN_PID + (int32_t)d->segment;
}

/* ---- processes ---- */

static void bear(struct day *d, unsigned tick, unsigned who, enum process_role role,
                 const char *name, int32_t pid)
{
    struct process_info *p = &d->info[who];
    *p = (struct process_info){.id = {pid, 90000 + tick}, .ppid = who ? main_pid(d) : 1};
    p->role = role;
    p->comm_len = (uint16_t)snprintf(p->comm, sizeof p->comm, "%s", name);
    p->cmdline_len = (uint16_t)snprintf(
        p->cmdline, sizeof p->cmdline,
        "python3%c-m%ctraining.finetune%c--config%cconfigs/large_model_run.yaml%c--rank%c%u", 0, 0,
        0, 0, 0, 0, who);
    d->slot[who] = d->slots++;
    trace_writer_process(d->w, at_ns(tick), PROCESS_BORN, d->slot[who], p);
}

static void die(struct day *d, unsigned tick, unsigned who)
{
    trace_writer_process(d->w, at_ns(tick), PROCESS_DIED, d->slot[who], &d->info[who]);
}

static void change_workers(struct day *d, unsigned tick, bool are_there)
{
    for (unsigned i = 0; i < DATA_WORKERS; i++) {
        unsigned who = 2 + COMPILE_WORKERS + i;
        if (are_there)
            die(d, tick, who);
        bear(d, tick, who, ROLE_DATA_WORKER, "pt_data_worker", (int32_t)(10000 + d->slots));
    }
}

/* ---- marks ---- */

__attribute__((format(printf, 3, 4))) static void say(struct day *d, unsigned tick, const char *fmt,
                                                      ...)
{
    char text[512];
    struct mark m = {0};
    va_list ap;
    va_start(ap, fmt);
    int len = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (mark_parse(text, (size_t)len, &m) < 0)
        exit(1);
    m.t_ns = at_ns(tick) + NS_PER_S / 4;
    m.pid = main_pid(d);
    trace_writer_mark(d->w, &m);
}

static void begin_segment(struct day *d, unsigned tick)
{
    char text[64];
    snprintf(text, sizeof text, "{\"segment\":%u}", d->segment);
    for (unsigned i = 0; d->segment && i < ALIVE; i++)
        die(d, tick, i);
    if (d->segment)
        trace_writer_note(d->w, at_ns(tick), "segment", text);
    bear(d, tick, 0, ROLE_LAUNCHER, "torchrun", 3000 + (int32_t)d->segment);
    bear(d, tick, 1, ROLE_MAIN, "python3", main_pid(d));
    for (unsigned i = 0; i < COMPILE_WORKERS; i++)
        bear(d, tick, 2 + i, ROLE_COMPILE_WORKER, "pt_compile", (int32_t)(9000 + d->slots));
    change_workers(d, tick, false);
    for (unsigned i = 0; i < FIGURES; i++) {
        snprintf(text, sizeof text, "%s@%d", figures[i], (int)main_pid(d));
        trace_writer_entity(d->w, at_ns(tick), ENTITY_SERIES, d->figure + i, text);
    }
    say(d, tick, "KIND=begin\nSTEPS_PER_EPOCH=%d\nTORCH_VERSION=2.9.1\nPYTHON_VERSION=3.11.2",
        DAY_EPOCH_STEPS);
}

static void mark_step(struct day *d, unsigned tick)
{
    unsigned step = tick / DAY_STEP_S, quarter = DAY_EPOCH_STEPS / 4;
    say(d, tick, "KIND=step\nSTEP=%u\nEPOCH=%.4f", step, (double)step / DAY_EPOCH_STEPS);
    if (step % quarter == quarter / 2) {
        say(d, tick, "KIND=phase\nNAME=evaluate\nSTATE=begin");
        say(d, tick, "KIND=eval\nSTEP=%u", step);
    } else if (step % quarter == quarter / 2 + 30) {
        say(d, tick, "KIND=phase\nNAME=evaluate\nSTATE=end");
    } else if (step % (2 * quarter) == quarter) {
        say(d, tick, "KIND=save\nSTEP=%u", step);
    } else if (step && step % DAY_EPOCH_STEPS == 0) {
        say(d, tick, "KIND=epoch\nSTEP=%u\nEPOCH=%u", step, step / DAY_EPOCH_STEPS);
        change_workers(d, tick, true);
    }
}

static void guard_acts(struct day *d, unsigned tick)
{
    static const char *const acts[] = {"warn", "ask", "checkpoint", "stand down"};
    char text[256];
    snprintf(text, sizeof text,
             "{\"t_s\":%u,\"segment\":%u,\"act\":\"%s\",\"trigger\":\"forecast\",\"why\":\"at this "
             "rate 24.0 GiB are reached in 41 minutes, and a checkpoint takes 52 s\",\"dry_run\":"
             "false}",
             tick, d->segment, acts[d->guard_acts++ % 4]);
    trace_writer_note(d->w, at_ns(tick), "guard", text);
}

/* ---- samples ---- */

static uint64_t resident(struct day *d, unsigned tick, unsigned who)
{
    unsigned since = tick % d->segment_ticks, step = since / DAY_STEP_S;
    uint64_t noise = random_below(d, 4 * DAY_MIB) & ~UINT64_C(4095);
    if (who == 0)
        return 40 * DAY_MIB;
    if (who < 2 + COMPILE_WORKERS && who > 1)
        return 620 * DAY_MIB + who * DAY_MIB;
    if (who > 1)
        return 2 * DAY_GIB + who * 10 * DAY_MIB + noise;
    bool evaluates = step % 450 >= 225 && step % 450 < 255;
    return 6 * DAY_GIB + step * DAY_LEAK_BYTES + step % 7 * 60 * DAY_MIB + noise +
           (evaluates ? 3 * DAY_GIB / 2 : 0);
}

static uint64_t write_process(struct day *d, unsigned tick, unsigned who)
{
    struct sample s = {0};
    uint64_t rss = resident(d, tick, who), file = 180 * DAY_MIB, shmem = 16 * DAY_MIB;
    file = file < rss / 2 ? file : rss / 2;
    shmem = shmem < rss / 4 ? shmem : 0;
    sample_put(&s, SAMPLE_RSS, rss);
    if ((tick + who) % 5 == 0) {
        sample_put(&s, SAMPLE_ANON, rss - file - shmem);
        sample_put(&s, SAMPLE_FILE, file);
        sample_put(&s, SAMPLE_SHMEM, shmem);
        sample_put(&s, SAMPLE_SWAP, random_below(d, 64) * 4096);
        sample_put(&s, SAMPLE_PEAK, rss + 5 * DAY_MIB);
        sample_put(&s, SAMPLE_GPU, who == 1 ? 30 * DAY_GIB + random_below(d, DAY_GIB) : 0);
    }
    if ((tick + who) % 10 == 0) {
        sample_put(&s, SAMPLE_UNIQUE, rss - file - shmem - rss / 16);
        sample_put(&s, SAMPLE_PSS, rss - file / 2);
    }
    trace_writer_sample(d->w, ENTITY_PROCESS, d->slot[who], &s);
    return rss;
}

static void write_machine(struct day *d, uint64_t all)
{
    struct sample m = {0};
    sample_put(&m, MACHINE_TOTAL, 64 * DAY_GIB);
    sample_put(&m, MACHINE_AVAILABLE, 40 * DAY_GIB - all / 2 + random_below(d, 64) * DAY_MIB);
    sample_put(&m, MACHINE_SWAP_TOTAL, 8 * DAY_GIB);
    sample_put(&m, MACHINE_SWAP_FREE, 8 * DAY_GIB - random_below(d, 64) * 4096);
    sample_put(&m, MACHINE_ANON_PAGES, all + random_below(d, 512) * 4096);
    sample_put(&m, MACHINE_SHMEM, 300 * DAY_MIB + random_below(d, 512) * 4096);
    sample_put(&m, MACHINE_PSI_SOME, random_below(d, 40));
    sample_put(&m, MACHINE_PSI_FULL, random_below(d, 4));
    sample_put(&m, MACHINE_LIMIT, 24 * DAY_GIB);
    sample_put(&m, MACHINE_LIMIT_USED, all - all / 20 + random_below(d, 512) * 4096);
    sample_put(&m, MACHINE_LIMIT_PEAK, 24 * DAY_GIB);
    sample_put(&m, MACHINE_TREE_LOW, all - all / 10);
    sample_put(&m, MACHINE_TREE_HIGH, all);
    sample_put(&m, MACHINE_CHARGE, all - all / 12);
    trace_writer_sample(d->w, ENTITY_MACHINE, 0, &m);
}

static void write_gpus(struct day *d)
{
    for (unsigned i = 0; i < GPUS; i++) {
        struct sample g = {0};
        sample_put(&g, GPU_TOTAL, 80 * DAY_GIB);
        sample_put(&g, GPU_USED, (60 + i) * DAY_GIB + random_below(d, DAY_GIB));
        sample_put(&g, GPU_JOB, (59 + i) * DAY_GIB + random_below(d, DAY_GIB));
        trace_writer_sample(d->w, ENTITY_GPU, i, &g);
    }
}

static void write_figures(struct day *d, unsigned tick)
{
    uint64_t grown = tick % d->segment_ticks / DAY_STEP_S * DAY_LEAK_BYTES;
    for (unsigned i = 0; i < FIGURES; i++) {
        struct sample s = {0};
        sample_put(&s, 0, (1 + i) * DAY_GIB + random_below(d, DAY_MIB) + (i == 0 ? grown : 0));
        trace_writer_sample(d->w, ENTITY_SERIES, d->figure + i, &s);
    }
}

static void live(struct day *d)
{
    for (unsigned tick = 0; tick < d->ticks; tick++) {
        uint64_t all = 0;
        if (tick == d->segment_ticks) {
            d->segment = 1;
            d->figure = FIGURES;
        }
        if (tick % d->segment_ticks == 0)
            begin_segment(d, tick);
        trace_writer_tick_begin(d->w, at_ns(tick));
        for (unsigned who = 0; who < ALIVE; who++)
            all += write_process(d, tick, who);
        write_machine(d, all);
        write_gpus(d);
        write_figures(d, tick);
        trace_writer_tick_end(d->w);
        if (tick % DAY_STEP_S == 0)
            mark_step(d, tick);
        if (tick % 300 == 299)
            guard_acts(d, tick);
        trace_writer_flush(d->w, at_ns(tick), false);
    }
    say(d, d->ticks, "KIND=end");
}

/* ---- the other files of a run folder ---- */

static json_t *segments_json(const struct day *d)
{
    json_t *list = json_array();
    for (int i = 0; i < DAY_SEGMENTS; i++)
        json_array_append_new(
            list, json_pack("{s:i,s:i,s:i,s:i,s:i,s:i,s:I,s:s,s:{s:s}}", "segment", i, "pid",
                            DAY_MAIN_PID + i, "duration_s", (int)d->segment_ticks, "first_step",
                            i * (int)d->segment_ticks / DAY_STEP_S, "last_step",
                            (i + 1) * (int)d->segment_ticks / DAY_STEP_S - 1, "checkpoint_step",
                            (i + 1) * (int)d->segment_ticks / DAY_STEP_S - 100, "peak_bytes",
                            (json_int_t)(22 * DAY_GIB), "verdict", "leaking", "end", "cause",
                            i ? "finished" : "the guard stopped it: 24.0 GiB would be reached"));
    return list;
}

static json_t *run_json(const struct day *d)
{
    json_t *gpus = json_array();
    for (int i = 0; i < GPUS; i++)
        json_array_append_new(gpus, json_pack("{s:s,s:I,s:I}", "name", "NVIDIA H100 80GB HBM3",
                                              "total_bytes", (json_int_t)(80 * DAY_GIB),
                                              "job_peak_bytes", (json_int_t)(63 * DAY_GIB)));
    return json_pack("{s:s,s:s,s:s,s:s,s:s,s:s,s:[s,s,s,s,s],s:i,s:i,s:{s:I,s:s},s:{s:b,s:I,s:[]},"
                     "s:o,s:o,s:{s:s,"
                     "s:i,s:s}}",
                     "ebb", "0", "name", "a day of fine-tuning", "state", "ended", "host", "node17",
                     "kernel", "6.1.0", "started", "2026-01-31T00:00:00+0000", "command",
                     "torchrun", "-m", "training.finetune", "--config",
                     "configs/large_model_run.yaml", "duration_s", (int)d->ticks, "interval_s", 1,
                     "limit", "limit_bytes", (json_int_t)(24 * DAY_GIB), "kind", "given", "guard",
                     "on", 1, "limit_bytes", (json_int_t)(24 * DAY_GIB), "events", "segments",
                     segments_json(d), "gpus", gpus, "end", "kind", "exited", "status", 0, "cause",
                     "it ended by itself");
}

static void record(const struct rundir *dir, struct day *d)
{
    const struct trace_writer_options options = {.patient = true};
    struct err err = {0};
    json_t *run = run_json(d);
    json_t *header = json_pack("{s:I,s:s,s:s}", "start_mono_ns", (json_int_t)at_ns(0), "host",
                               "node17", "arch", "x86_64");
    if (trace_writer_new(dir->fd, "trace.ebb", header, &options, &d->w, &err) < 0) {
        fprintf(stderr, "day: %s\n", err.text);
        exit(1);
    }
    for (unsigned i = 0; i < GPUS; i++)
        trace_writer_entity(d->w, at_ns(0), ENTITY_GPU, i, "NVIDIA H100 80GB HBM3");
    live(d);
    if (trace_writer_close(d->w, NULL, UINT64_MAX) < 0 || rundir_write_json(dir, run) < 0)
        exit(1);
    json_decref(header);
    json_decref(run);
}

int main(int argc, char **argv)
{
    struct day d = {.seed = 88172645463325252u};
    struct rundir dir;
    struct err err = {0};
    d.ticks = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : DAY_TICKS;
    d.segment_ticks = d.ticks / DAY_SEGMENTS;
    if (argc < 2 || argc > 3 || d.segment_ticks == 0) {
        fprintf(stderr, "usage: day FOLDER [TICKS]\n");
        return 2;
    }
    if (rundir_create(argv[1], "day", 0, &dir, &err) < 0) {
        fprintf(stderr, "day: %s\n", err.text);
        return 1;
    }
    record(&dir, &d);
    for (unsigned i = 0; i < DAY_SEGMENTS; i++)
        day_heap(dir.fd, DAY_MAIN_PID + (int32_t)i, i * d.segment_ticks, d.segment_ticks);
    rundir_fini(&dir);
    return 0;
}
