/* Computes the measurements that run.json contains. */
#include "engine/private.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "proc/read.h"
#include "base/number.h"
#include "run/outcome.h"
#include "verdict/verdict_json.h"

enum { MEASURED_PROCESSES = 64 };

static bool measure_sample(const struct sample *s, unsigned field, uint64_t *ret)
{
    *ret = sample_has(s, field) ? s->v[field] : 0;
    return sample_has(s, field);
}

/* Fills in how many samples one series has, and its start, mean, peak and end. Baseline, growth and
 * rate are taken from its verdict. */
static void measure_series(struct outcome_series *o, const struct series *s, uint64_t peak_bytes,
                           const struct verdict_result *verdict)
{
    struct series_point last;
    o->samples = s ? s->readings : 0;
    if (!s || !series_last(s, &last))
        return;
    o->has_start_bytes = o->has_mean_bytes = o->has_peak_bytes = o->has_end_bytes = true;
    o->start_bytes = s->start;
    o->mean_bytes = series_mean(s);
    o->peak_bytes = peak_bytes;
    o->end_bytes = last.v;
    if (verdict && verdict->has_floor) {
        o->has_floor_bytes = o->floor_bytes.has_first = o->floor_bytes.has_last = true;
        o->floor_bytes.first = number_to_u64(round(verdict->floor_first_bytes));
        o->floor_bytes.last = number_to_u64(round(verdict->floor_last_bytes));
        o->has_growth_bytes = true;
        o->growth_bytes = (int64_t)(o->floor_bytes.last - o->floor_bytes.first);
    }
    o->has_rate_bytes_per_min = verdict && verdict->rate_bytes_per_min.known;
    if (o->has_rate_bytes_per_min)
        o->rate_bytes_per_min = verdict_rounded(verdict->rate_bytes_per_min.value);
}

static void measure_process(struct outcome_process *o, const struct run_entity *p, uint64_t now_ns)
{
    const struct process_info *info = &p->info;
    const struct sample *s = &p->last;
    o->pid = info->id.pid;
    o->start_ticks = info->id.start_ticks;
    o->ppid = info->ppid;
    snprintf(o->role, sizeof o->role, "%s", process_role_name(info->role));
    o->name = strndup(info->comm, info->comm_len);
    o->command = outcome_words(info->cmdline, info->cmdline_len, &o->command_count);
    o->alive = !p->is_dead;
    o->alive_s = outcome_seconds((p->is_dead ? p->died_ns : now_ns) - p->born_ns);
    measure_series(&o->series, p->signal[SAMPLE_RSS], p->peak_bytes, judge_result(p));
    o->has_unique_bytes = measure_sample(s, SAMPLE_UNIQUE, &o->unique_bytes);
    o->has_anon_bytes = measure_sample(s, SAMPLE_ANON, &o->anon_bytes);
    o->has_file_bytes = measure_sample(s, SAMPLE_FILE, &o->file_bytes);
    o->has_shmem_bytes = measure_sample(s, SAMPLE_SHMEM, &o->shmem_bytes);
    o->has_swap_bytes = measure_sample(s, SAMPLE_SWAP, &o->swap_bytes);
    o->has_gpu_bytes = measure_sample(s, SAMPLE_GPU, &o->gpu_bytes);
    o->has_gpu_peak_bytes = p->gpu_peak_bytes != 0;
    o->gpu_peak_bytes = p->gpu_peak_bytes;
}

/* Lists living processes and the largest exited processes, in descending order. Processes that
 * started and exited between two ticks are missing. */
static int measure_processes(const struct run *run, struct outcome_measured *o)
{
    struct run_entity **all;
    size_t n = run_list(run, RUN_PROCESS, &all);
    o->processes = calloc(MEASURED_PROCESSES, sizeof *o->processes);
    for (size_t i = 0; o->processes && i < n && o->process_count < MEASURED_PROCESSES; i++)
        if (all[i]->signal[SAMPLE_RSS])
            measure_process(&o->processes[o->process_count++], all[i], run->now_ns);
    free(all);
    if (!o->processes)
        return -ENOMEM;
    const struct outcome_process *first = &o->processes[0];
    o->has_largest = o->process_count > 0;
    if (o->has_largest) {
        o->largest = (struct outcome_largest){.pid = first->pid,
                                              .name = first->name ? strdup(first->name) : NULL,
                                              .has_peak_bytes = true,
                                              .peak_bytes = first->series.peak_bytes};
        memcpy(o->largest.role, first->role, sizeof o->largest.role);
    }
    return 0;
}

static int measure_roles(const struct run *run, struct outcome_measured *o)
{
    struct run_entity *const *living;
    uint64_t unique[ROLE_COUNT] = {0};
    struct run_role all[ROLE_COUNT];
    memcpy(all, run->dead_roles, sizeof all);
    size_t n = run_living(run, RUN_PROCESS, &living);
    for (size_t i = 0; i < n; i++) {
        const struct run_entity *p = living[i];
        struct run_role *role = &all[p->info.role];
        role->count++;
        if (p->peak_bytes > role->peak_bytes)
            role->peak_bytes = p->peak_bytes;
        unique[p->info.role] += sample_has(&p->last, SAMPLE_UNIQUE) ? p->last.v[SAMPLE_UNIQUE] : 0;
    }
    o->roles = calloc(ROLE_COUNT, sizeof *o->roles);
    for (int role = 0; o->roles && role < ROLE_COUNT; role++) {
        struct outcome_role *r = &o->roles[o->role_count];
        if (!all[role].count)
            continue;
        *r = (struct outcome_role){.count = all[role].count,
                                   .has_largest_bytes = all[role].peak_bytes != 0,
                                   .largest_bytes = all[role].peak_bytes,
                                   .has_unique_bytes = unique[role] != 0,
                                   .unique_bytes = unique[role]};
        snprintf(r->role, sizeof r->role, "%s", process_role_name((enum process_role)role));
        o->role_count++;
    }
    return o->roles ? 0 : -ENOMEM;
}

/* Fills in the memory of the process tree. Unique and shared memory are the amounts at the time of
 * the peak. */
static void measure_tree(struct engine *e, struct outcome_tree *o)
{
    const struct judge_tree *verdict = judge_tree(e->judge);
    const struct proc_tree_memory *m = &e->peaks.memory;
    measure_series(&o->series, e->run->job.signal[JOB_MEMORY], e->run->job.peak_bytes,
                   verdict ? &verdict->result : NULL);
    if (engine_peak(e)) {
        o->series.has_peak_bytes = true;
        o->series.peak_bytes = engine_peak(e);
    }
    o->has_peak_high_bytes = e->peaks.tree_high_bytes != 0;
    o->peak_high_bytes = e->peaks.tree_high_bytes;
    if (m->known && m->unique_known) {
        o->has_unique_bytes = o->has_shared_bytes = o->has_unique_peak_bytes = true;
        o->unique_bytes = m->unique_bytes < m->low_bytes ? m->unique_bytes : m->low_bytes;
        o->shared_bytes = m->low_bytes - o->unique_bytes;
        o->unique_peak_bytes = e->peaks.unique_sum_bytes;
    }
    o->has_rss_sum_bytes = true;
    o->rss_sum_bytes = m->rss_sum_bytes;
}

static int measure_gpus(const struct run *run, struct outcome_measured *o)
{
    struct run_entity *const *gpus;
    size_t n = run_living(run, RUN_GPU, &gpus);
    o->gpus = calloc(n + 1, sizeof *o->gpus);
    for (size_t i = 0; o->gpus && i < n; i++) {
        struct outcome_gpu *g = &o->gpus[o->gpu_count++];
        g->name = strdup(gpus[i]->name);
        g->has_total_bytes = measure_sample(&gpus[i]->last, GPU_TOTAL, &g->total_bytes);
        g->has_used_bytes = measure_sample(&gpus[i]->last, GPU_USED, &g->used_bytes);
        g->has_job_bytes = measure_sample(&gpus[i]->last, GPU_JOB, &g->job_bytes);
        g->has_job_peak_bytes = true;
        g->job_peak_bytes = gpus[i]->gpu_peak_bytes;
    }
    return o->gpus ? 0 : -ENOMEM;
}

static void measure_limit(const struct machine_limit *l, struct outcome_limit *o)
{
    *o = (struct outcome_limit){.kind = strdup(limit_kind_name(l->kind)),
                                .where = strdup(l->where),
                                .soft = l->soft,
                                .has_limit_bytes = true,
                                .limit_bytes = l->limit_bytes,
                                .has_used_bytes = l->used_known,
                                .used_bytes = l->used_bytes,
                                .has_headroom_bytes = true,
                                .headroom_bytes = l->headroom_bytes,
                                .has_peak_bytes = l->peak_known,
                                .peak_bytes = l->peak_bytes};
}

static void measure_recording(const struct engine *e, struct outcome_recording *o)
{
    struct trace_writer_status s = e->recorded;
    struct stat st;
    if (e->writer)
        trace_writer_status(e->writer, &s);
    if (fstatat(e->record_dir_fd, "trace.ebb", &st, 0) == 0)
        s.bytes_on_disk = (uint64_t)st.st_size;
    *o =
        (struct outcome_recording){.file = strdup("trace.ebb"),
                                   .has_bytes = true,
                                   .bytes = s.bytes_on_disk,
                                   .readings = s.cells,
                                   .error = s.first_error ? strdup(strerror(-s.first_error)) : NULL,
                                   .blocks_lost = s.blocks_lost,
                                   .marks_left_out = s.marks_left_out};
}

static void measure_cost(const struct engine *e, uint64_t now_ns, struct outcome_cost *o)
{
    struct rusage usage;
    struct proc_statm statm = {0};
    (void)proc_read_statm(e->options.root, 0, &statm);
    getrusage(RUSAGE_SELF, &usage);
    double wall = (double)(now_ns - e->started_ns) / (double)NS_PER_S;
    struct proc_unique_cost unique = {0};
    if (e->unique)
        proc_unique_cost(e->unique, &unique);
    o->has_cpu_s = o->has_rss_bytes = o->has_longest_unique_call_ms = true;
    o->cpu_s = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
               (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    o->has_cpu_permyriad = wall > 0;
    o->cpu_permyriad = wall > 0 ? (int64_t)(o->cpu_s / wall * 1e4) : 0;
    o->rss_bytes = statm.rss_pages * e->options.root->page_bytes;
    o->ticks = e->cost.ticks;
    o->longest_tick_ms = (double)e->cost.longest_ns / (double)NS_PER_MS;
    o->longest_unique_call_ms = (double)unique.longest_call_ns / (double)NS_PER_MS;
}

int engine_measure(struct engine *e, uint64_t now_ns, struct outcome_measured *ret)
{
    const struct run *run = e->run;
    if (!e->is_judged)
        judge_update(e->judge);
    e->is_judged = true;
    /* the verdict on the job takes its peak from the run */
    e->run->peak_bytes = e->watching_all ? 0 : engine_peak(e);
    ret->has_duration_s = ret->has_interval_s = ret->has_processes_seen = ret->has_gaps = true;
    ret->duration_s = outcome_seconds(now_ns - e->started_ns);
    ret->interval_s = outcome_seconds(e->options.interval_ns);
    ret->processes_seen = run->processes_seen;
    ret->gaps = run->gaps;
    ret->has_limit = e->now.has_limit;
    if (ret->has_limit)
        measure_limit(&e->now.limit, &ret->limit);
    ret->has_tree = !e->watching_all;
    if (ret->has_tree) {
        measure_tree(e, &ret->tree);
        ret->ask_bytes = engine_request(e);
        ret->has_ask_bytes = ret->ask_bytes != 0;
    }
    ret->has_recording = e->writer || e->was_recorded;
    if (ret->has_recording)
        measure_recording(e, &ret->recording);
    ret->has_marks = ret->has_cost = true;
    ret->marks =
        (struct outcome_marks){.received = e->marks_seen,
                               .steps = e->steps_seen,
                               .has_last_step = run->has_step,
                               .last_step = run->step,
                               .source = e->step_source[0] ? strdup(e->step_source) : NULL};
    measure_cost(e, now_ns, &ret->cost);
    int r = measure_processes(run, ret);
    if (r == 0)
        r = measure_roles(run, ret);
    return r < 0 ? r : measure_gpus(run, ret);
}
