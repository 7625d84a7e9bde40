/* The facts of a run as one JSON document: run.json, and what the text summary is a view of. */
#include "engine/private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/io.h"
#include "base/json.h"
#include "judge/verdicts.h"

enum { SUMMARY_PROCESSES = 64 };

static json_t *sample_json(const struct sample *s, unsigned field)
{
    return sample_has(s, field) ? json_u64(s->v[field]) : json_null();
}

/* Readings, start, mean, peak and end of one series; floor, growth and rate are those of its
 * verdict. */
static void put_series(json_t *o, const struct series *s, uint64_t peak_bytes,
                       const struct verdict_result *verdict)
{
    struct series_point last;
    json_object_set_new(o, "samples", json_u64(s ? s->readings : 0));
    if (!series_last(s, &last))
        return;
    json_object_set_new(o, "start_bytes", json_u64(s->start));
    json_object_set_new(o, "mean_bytes", json_u64(series_mean(s)));
    json_object_set_new(o, "peak_bytes", json_u64(peak_bytes));
    json_object_set_new(o, "end_bytes", json_u64(last.v));
    if (verdict && verdict->has_floor) {
        double first = round(verdict->floor_first_bytes), now = round(verdict->floor_last_bytes);
        json_object_set_new(
            o, "floor_bytes",
            json_pack("{s:o,s:o}", "first", json_count(first), "last", json_count(now)));
        json_object_set_new(o, "growth_bytes", json_integer((json_int_t)(now - first)));
    }
    bool has_rate = verdict && verdict->rate_bytes_per_min.known;
    json_object_set_new(o, "rate_bytes_per_min",
                        has_rate ? json_real(round(verdict->rate_bytes_per_min.value))
                                 : json_null());
}

static json_t *command_json(const struct process_info *info)
{
    json_t *list = json_array();
    const char *at = info->cmdline, *end = info->cmdline + info->cmdline_len;
    while (at < end) {
        size_t len = strnlen(at, (size_t)(end - at));
        json_array_append_new(list, json_text(at, len));
        at += len + 1;
    }
    return list;
}

static json_t *process_json(const struct engine *e, const struct run_entity *p)
{
    const struct process_info *info = &p->info;
    uint64_t until = p->is_dead ? p->died_ns : e->run->now_ns;
    json_t *o = json_pack("{s:i,s:o,s:i,s:s,s:o,s:o,s:b,s:o}", "pid", (int)info->id.pid,
                          "start_ticks", json_u64(info->id.start_ticks), "ppid", (int)info->ppid,
                          "role", process_role_name(info->role), "name",
                          json_text(info->comm, info->comm_len), "command", command_json(info),
                          "alive", !p->is_dead, "alive_s", json_seconds(until - p->born_ns));
    if (!o)
        return NULL;
    put_series(o, p->signal[SAMPLE_RSS], p->peak_bytes, judge_result(p));
    json_object_set_new(o, "unique_bytes", sample_json(&p->last, SAMPLE_UNIQUE));
    json_object_set_new(o, "anon_bytes", sample_json(&p->last, SAMPLE_ANON));
    json_object_set_new(o, "file_bytes", sample_json(&p->last, SAMPLE_FILE));
    json_object_set_new(o, "shmem_bytes", sample_json(&p->last, SAMPLE_SHMEM));
    json_object_set_new(o, "swap_bytes", sample_json(&p->last, SAMPLE_SWAP));
    json_object_set_new(o, "gpu_bytes", sample_json(&p->last, SAMPLE_GPU));
    if (p->gpu_peak_bytes)
        json_object_set_new(o, "gpu_peak_bytes", json_u64(p->gpu_peak_bytes));
    return o;
}

/* The living and the largest of the dead, largest first. Nothing is known of a process that was
 * born and died between two ticks. */
static void put_processes(struct engine *e, json_t *doc)
{
    struct run_entity **all;
    size_t n = run_list(e->run, RUN_PROCESS, &all);
    json_t *list = json_array();
    for (size_t i = 0; i < n && json_array_size(list) < SUMMARY_PROCESSES; i++)
        if (all[i]->signal[SAMPLE_RSS])
            json_array_append_new(list, process_json(e, all[i]));
    json_object_set_new(doc, "processes", list);
    if (json_array_size(list)) {
        const struct run_entity *largest = all[0];
        json_object_set_new(doc, "largest",
                            json_pack("{s:i,s:o,s:s,s:o}", "pid", (int)largest->info.id.pid, "name",
                                      json_text(largest->info.comm, largest->info.comm_len), "role",
                                      process_role_name(largest->info.role), "peak_bytes",
                                      json_u64(largest->peak_bytes)));
    }
    free(all);
}

static json_t *roles_json(const struct run *run)
{
    struct run_entity *const *living;
    uint64_t unique[ROLE_COUNT] = {0};
    struct run_role all[ROLE_COUNT];
    json_t *list = json_array();
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
    for (int role = 0; role < ROLE_COUNT; role++)
        if (all[role].count)
            json_array_append_new(
                list,
                json_pack("{s:s,s:o,s:o,s:o}", "role", process_role_name((enum process_role)role),
                          "count", json_u64(all[role].count), "largest_bytes",
                          all[role].peak_bytes ? json_u64(all[role].peak_bytes) : json_null(),
                          "unique_bytes", unique[role] ? json_u64(unique[role]) : json_null()));
    return list;
}

/* Unique v. shared as it was at the peak. */
static json_t *tree_json(struct engine *e)
{
    const struct judge_tree *verdict = judge_tree(e->judge);
    json_t *o = json_object();
    put_series(o, e->run->job.signal[JOB_MEMORY], e->run->job.peak_bytes,
               verdict ? &verdict->result : NULL);
    if (engine_peak(e))
        json_object_set_new(o, "peak_bytes", json_u64(engine_peak(e)));
    if (e->peaks.tree_high_bytes)
        json_object_set_new(o, "peak_high_bytes", json_u64(e->peaks.tree_high_bytes));
    const struct proc_tree_memory *m = &e->peaks.memory;
    if (m->known && m->unique_known) {
        uint64_t unique = m->unique_bytes < m->low_bytes ? m->unique_bytes : m->low_bytes;
        json_object_set_new(o, "unique_bytes", json_u64(unique));
        json_object_set_new(o, "shared_bytes", json_u64(m->low_bytes - unique));
        json_object_set_new(o, "unique_peak_bytes", json_u64(e->peaks.unique_sum_bytes));
    }
    json_object_set_new(o, "rss_sum_bytes", json_u64(m->rss_sum_bytes));
    return o;
}

static json_t *gpus_json(const struct run *run)
{
    struct run_entity *const *gpus;
    size_t n = run_living(run, RUN_GPU, &gpus);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:o,s:o,s:o,s:o,s:o}", "name", json_text0(gpus[i]->name),
                                        "total_bytes", sample_json(&gpus[i]->last, GPU_TOTAL),
                                        "used_bytes", sample_json(&gpus[i]->last, GPU_USED),
                                        "job_bytes", sample_json(&gpus[i]->last, GPU_JOB),
                                        "job_peak_bytes", json_u64(gpus[i]->gpu_peak_bytes)));
    return list;
}

static json_t *recording_json(const struct engine *e)
{
    struct trace_writer_status s = e->recorded;
    struct stat st;
    if (e->writer)
        trace_writer_status(e->writer, &s);
    if (fstatat(e->record_dir_fd, "trace.ebb", &st, 0) == 0)
        s.bytes_on_disk = (uint64_t)st.st_size;
    return json_pack("{s:s,s:o,s:o,s:o,s:o,s:o}", "file", "trace.ebb", "bytes",
                     json_u64(s.bytes_on_disk), "readings", json_u64(s.cells), "error",
                     s.first_error ? json_text0(strerror(-s.first_error)) : json_null(),
                     "blocks_lost", json_u64(s.blocks_lost), "marks_left_out",
                     json_u64(s.marks_left_out));
}

static json_t *cost_json(const struct engine *e, uint64_t now_ns)
{
    struct rusage usage;
    char text[128];
    struct proc_statm statm = {0};
    ssize_t len = io_read_small(e->options.root->proc_fd, "self/statm", text, sizeof text);
    if (len > 0)
        proc_statm_parse(text, (size_t)len, &statm);
    getrusage(RUSAGE_SELF, &usage);
    double cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                 (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
    double wall = (double)(now_ns - e->started_ns) / (double)NS_PER_S;
    struct proc_unique_cost unique = {0};
    if (e->unique)
        proc_unique_cost(e->unique, &unique);
    return json_pack(
        "{s:f,s:o,s:o,s:o,s:o,s:o}", "cpu_s", cpu, "cpu_permyriad",
        wall > 0 ? json_integer((json_int_t)(cpu / wall * 1e4)) : json_null(), "rss_bytes",
        json_u64(statm.rss_pages * e->options.root->page_bytes), "ticks", json_u64(e->cost.ticks),
        "longest_tick_ms", json_real((double)e->cost.longest_ns / (double)NS_PER_MS),
        "longest_unique_call_ms", json_real((double)unique.longest_call_ns / (double)NS_PER_MS));
}

json_t *engine_summary(struct engine *e, uint64_t now_ns)
{
    const struct run *run = e->run;
    json_t *doc = json_object();
    if (!e->is_judged)
        judge_update(e->judge);
    e->is_judged = true;
    json_object_set_new(doc, "duration_s", json_seconds(now_ns - e->started_ns));
    json_object_set_new(doc, "interval_s", json_seconds(e->options.interval_ns));
    if (e->now.has_limit)
        json_object_set_new(doc, "limit", limit_json(&e->now.limit));
    if (!e->watching_all) {
        json_object_set_new(doc, "tree", tree_json(e));
        if (engine_request(e))
            json_object_set_new(doc, "ask_bytes", json_u64(engine_request(e)));
    }
    json_object_set_new(doc, "processes_seen", json_u64(run->processes_seen));
    put_processes(e, doc);
    json_object_set_new(doc, "roles", roles_json(run));
    json_object_set_new(doc, "gpus", gpus_json(run));
    json_object_set_new(doc, "verdict", judge_json(e->judge));
    if (e->writer || e->was_recorded)
        json_object_set_new(doc, "recording", recording_json(e));
    json_object_set_new(doc, "marks",
                        json_pack("{s:o,s:o,s:o}", "received", json_u64(e->marks_seen), "steps",
                                  json_u64(e->steps_seen), "last_step",
                                  run->has_step ? json_integer(run->step) : json_null()));
    json_object_set_new(doc, "gaps", json_u64(run->gaps));
    json_object_set_new(doc, "cost", cost_json(e, now_ns));
    return doc;
}
