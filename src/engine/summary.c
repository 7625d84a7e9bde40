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

static json_t *rate_json(const struct track *t)
{
    double rate;
    return track_rate(t, &rate) ? json_real(round(rate)) : json_null();
}

static json_t *sample_json(const struct sample *s, unsigned field)
{
    return sample_has(s, field) ? json_u64(s->v[field]) : json_null();
}

/* start, floor, mean, peak, end, growth and rate of one series */
static void put_track(json_t *o, const struct track *t)
{
    uint64_t first, last;
    json_object_set_new(o, "samples", json_u64(t->samples));
    if (!track_floor(t, &first, &last))
        return;
    json_object_set_new(o, "start_bytes", json_u64(t->first_bytes));
    json_object_set_new(o, "floor_bytes",
                        json_pack("{s:o,s:o}", "first", json_u64(first), "last", json_u64(last)));
    json_object_set_new(o, "mean_bytes", json_u64(track_mean(t)));
    json_object_set_new(o, "peak_bytes", json_u64(t->peak_bytes));
    json_object_set_new(o, "end_bytes", json_u64(t->last_bytes));
    json_object_set_new(o, "growth_bytes", json_integer((json_int_t)last - (json_int_t)first));
    json_object_set_new(o, "rate_bytes_per_min", rate_json(t));
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

static json_t *process_json(const struct history *h, uint64_t now_ns)
{
    uint64_t until = h->died_ns ? h->died_ns : now_ns;
    json_t *o =
        json_pack("{s:i,s:o,s:i,s:s,s:o,s:o,s:b,s:o}", "pid", (int)h->info.id.pid, "start_ticks",
                  json_u64(h->info.id.start_ticks), "ppid", (int)h->info.ppid, "role",
                  process_role_name(h->info.role), "name",
                  json_text(h->info.comm, h->info.comm_len), "command", command_json(&h->info),
                  "alive", h->died_ns == 0, "alive_s", json_seconds(until - h->born_ns));
    if (!o)
        return NULL;
    put_track(o, &h->rss);
    json_object_set_new(o, "unique_bytes", sample_json(&h->last, SAMPLE_UNIQUE));
    json_object_set_new(o, "anon_bytes", sample_json(&h->last, SAMPLE_ANON));
    json_object_set_new(o, "file_bytes", sample_json(&h->last, SAMPLE_FILE));
    json_object_set_new(o, "shmem_bytes", sample_json(&h->last, SAMPLE_SHMEM));
    json_object_set_new(o, "swap_bytes", sample_json(&h->last, SAMPLE_SWAP));
    json_object_set_new(o, "gpu_bytes", sample_json(&h->last, SAMPLE_GPU));
    if (h->gpu_peak_bytes)
        json_object_set_new(o, "gpu_peak_bytes", json_u64(h->gpu_peak_bytes));
    return o;
}

struct listing {
    const struct history **v;
    size_t count;
};

static int by_peak(const void *a, const void *b)
{
    const struct history *x = *(const struct history *const *)a;
    const struct history *y = *(const struct history *const *)b;
    if (x->rss.peak_bytes != y->rss.peak_bytes)
        return x->rss.peak_bytes < y->rss.peak_bytes ? 1 : -1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

/* One that came and went between two looks was seen, but there is nothing to say of it. */
static void list_one(struct listing *l, const struct history *h)
{
    if (h && h->rss.samples)
        l->v[l->count++] = h;
}

/* The living and the largest of the dead, largest first. */
static int list_all(struct engine *e, struct listing *ret)
{
    size_t living = proc_tree_count(e->tree);
    ret->v = calloc(living + e->gone.count + 1, sizeof(const struct history *));
    ret->count = 0;
    if (!ret->v)
        return -1;
    for (size_t i = 0; i < living; i++)
        list_one(ret, history_of(proc_tree_at(e->tree, i)));
    for (size_t i = 0; i < e->gone.count; i++)
        list_one(ret, &e->gone.largest[i]);
    qsort(ret->v, ret->count, sizeof(const struct history *), by_peak);
    return 0;
}

static json_t *processes_json(const struct listing *all, uint64_t now_ns)
{
    json_t *list = json_array();
    for (size_t i = 0; i < all->count && i < SUMMARY_PROCESSES; i++)
        json_array_append_new(list, process_json(all->v[i], now_ns));
    return list;
}

static json_t *roles_json(struct engine *e)
{
    uint64_t count[ROLE_COUNT], largest[ROLE_COUNT], unique[ROLE_COUNT] = {0};
    json_t *list = json_array();
    memcpy(count, e->gone.seen, sizeof count);
    memcpy(largest, e->gone.peak_bytes, sizeof largest);
    for (size_t i = 0; i < proc_tree_count(e->tree); i++) {
        const struct history *h = history_of(proc_tree_at(e->tree, i));
        if (!h)
            continue;
        enum process_role role = h->info.role;
        count[role]++;
        if (h->rss.peak_bytes > largest[role])
            largest[role] = h->rss.peak_bytes;
        unique[role] += sample_has(&h->last, SAMPLE_UNIQUE) ? h->last.v[SAMPLE_UNIQUE] : 0;
    }
    for (int role = 0; role < ROLE_COUNT; role++)
        if (count[role])
            json_array_append_new(
                list,
                json_pack("{s:s,s:o,s:o,s:o}", "role", process_role_name((enum process_role)role),
                          "count", json_u64(count[role]), "largest_bytes",
                          largest[role] ? json_u64(largest[role]) : json_null(), "unique_bytes",
                          unique[role] ? json_u64(unique[role]) : json_null()));
    return list;
}

/* Unique v. shared as it was at the peak. */
static json_t *tree_json(struct engine *e)
{
    json_t *o = json_object();
    put_track(o, &e->tree_track);
    if (engine_peak(e))
        json_object_set_new(o, "peak_bytes", json_u64(engine_peak(e)));
    if (e->tree_high_peak_bytes)
        json_object_set_new(o, "peak_high_bytes", json_u64(e->tree_high_peak_bytes));
    const struct proc_tree_memory *m = &e->memory_at_peak;
    if (m->known && m->unique_known) {
        uint64_t unique = m->unique_bytes < m->low_bytes ? m->unique_bytes : m->low_bytes;
        json_object_set_new(o, "unique_bytes", json_u64(unique));
        json_object_set_new(o, "shared_bytes", json_u64(m->low_bytes - unique));
        json_object_set_new(o, "unique_peak_bytes", json_u64(e->unique_sum_peak_bytes));
    }
    json_object_set_new(o, "rss_sum_bytes", json_u64(m->rss_sum_bytes));
    return o;
}

static json_t *gpus_json(const struct engine *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < engine_gpu_count(e); i++)
        json_array_append_new(
            list, json_pack("{s:o,s:o,s:o,s:o,s:o}", "name", json_text0(e->gpu_now.device[i].name),
                            "total_bytes", sample_json(&e->gpu_sample[i], GPU_TOTAL), "used_bytes",
                            sample_json(&e->gpu_sample[i], GPU_USED), "job_bytes",
                            sample_json(&e->gpu_sample[i], GPU_JOB), "job_peak_bytes",
                            json_u64(e->gpu_job_peak_bytes[i])));
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
        json_u64(statm.rss_pages * e->options.root->page_bytes), "ticks", json_u64(e->ticks),
        "longest_tick_ms", json_real((double)e->tick_cost_ns_longest / (double)NS_PER_MS),
        "longest_unique_call_ms", json_real((double)unique.longest_call_ns / (double)NS_PER_MS));
}

json_t *engine_summary(struct engine *e, uint64_t now_ns)
{
    struct listing all;
    if (list_all(e, &all) < 0)
        return NULL;
    json_t *doc = json_object();
    json_object_set_new(doc, "duration_s", json_seconds(now_ns - e->started_ns));
    json_object_set_new(doc, "interval_s", json_seconds(e->options.interval_ns));
    if (e->limit_known)
        json_object_set_new(doc, "limit", limit_json(&e->limit_now));
    if (!e->watching_all) {
        json_object_set_new(doc, "tree", tree_json(e));
        if (engine_request(e))
            json_object_set_new(doc, "ask_bytes", json_u64(engine_request(e)));
    }
    json_object_set_new(doc, "processes_seen", json_u64(e->processes_seen));
    json_object_set_new(doc, "processes", processes_json(&all, now_ns));
    json_object_set_new(doc, "roles", roles_json(e));
    if (all.count)
        json_object_set_new(doc, "largest",
                            json_pack("{s:i,s:o,s:s,s:o}", "pid", (int)all.v[0]->info.id.pid,
                                      "name",
                                      json_text(all.v[0]->info.comm, all.v[0]->info.comm_len),
                                      "role", process_role_name(all.v[0]->info.role), "peak_bytes",
                                      json_u64(all.v[0]->rss.peak_bytes)));
    json_object_set_new(doc, "gpus", gpus_json(e));
    if (!e->is_judged)
        judge_update(e->judge);
    e->is_judged = true;
    json_object_set_new(doc, "verdict", judge_json(e->judge));
    if (e->writer || e->was_recorded)
        json_object_set_new(doc, "recording", recording_json(e));
    json_object_set_new(doc, "marks",
                        json_pack("{s:o,s:o,s:o}", "received", json_u64(e->marks_seen), "steps",
                                  json_u64(e->steps_seen), "last_step",
                                  e->step_known ? json_integer(e->step) : json_null()));
    json_object_set_new(doc, "gaps", json_u64(e->gaps));
    json_object_set_new(doc, "cost", cost_json(e, now_ns));
    free(all.v);
    return doc;
}
