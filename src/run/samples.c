/* Reduces a run to a few hundred points, as JSON. */
#include "run/samples.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/number.h"

enum { FIRST_BUCKET_MS = 50 };

struct run_settings samples_options(uint64_t start_wall_ns, uint64_t from_ns, uint64_t to_ns,
                                    uint32_t points)
{
    const uint64_t least = FIRST_BUCKET_MS * NS_PER_MS;
    const uint64_t span = to_ns > from_ns ? to_ns - from_ns + 1 : 0;
    const uint64_t each = span / points + (span % points ? 1 : 0);
    return (struct run_settings){
        .signals = {[RUN_JOB] = 1u << JOB_MEMORY | 1u << JOB_UNIQUE | 1u << JOB_RSS_SUM,
                    [RUN_PROCESS] = 1u << SAMPLE_RSS,
                    [RUN_GPU] = 1u << GPU_USED | 1u << GPU_JOB | 1u << GPU_ALLOCATED |
                                1u << GPU_RESERVED | 1u << GPU_OUTSIDE},
        .buckets = {[RUN_JOB] = points, [RUN_PROCESS] = points, [RUN_GPU] = 2 * points},
        .dead = RUN_DEAD_LIVE,
        .marks = SAMPLES_MARKS / 2,
        .width_ns = each > least ? each : least,
        .start_wall_ns = start_wall_ns,
        .from_ns = from_ns,
        .to_ns = to_ns};
}

/* One column of the result: a list of values. All columns have the same times. */
struct samples_column {
    const char *key;
    const struct series *series;
    bool is_min;
};

/* Writes the times as t_s, and one list for each column, using the buckets of the coarsest
 * series. */
static void put_columns(json_t *o, const struct samples_column *columns, size_t count)
{
    json_t *times = json_array();
    uint64_t width_ns = 0, origin_ns = 0;
    for (size_t i = 0; i < count; i++) {
        const struct series *s = columns[i].series;
        json_object_set_new(o, columns[i].key, json_array());
        if (s && s->width_ns > width_ns) {
            width_ns = s->width_ns;
            origin_ns = s->origin_ns;
        }
    }
    json_object_set_new(o, "t_s", times);
    for (uint64_t from_ns = origin_ns;;) {
        struct series_point p;
        uint64_t next_ns = UINT64_MAX;
        for (size_t i = 0; i < count; i++)
            if (series_after(columns[i].series, from_ns, &p) && p.t_ns < next_ns)
                next_ns = p.t_ns;
        if (next_ns == UINT64_MAX)
            break;
        from_ns = next_ns - (next_ns - origin_ns) % width_ns;
        json_array_append_new(times, json_seconds(from_ns + width_ns / 2));
        const uint64_t to_ns =
            width_ns > UINT64_MAX - from_ns ? UINT64_MAX : from_ns + width_ns - 1;
        for (size_t i = 0; i < count; i++) {
            bool has = columns[i].is_min ? series_min(columns[i].series, from_ns, to_ns, &p)
                                         : series_max(columns[i].series, from_ns, to_ns, &p);
            json_array_append_new(json_object_get(o, columns[i].key),
                                  has ? json_u64(p.v) : json_null());
        }
        if (to_ns == UINT64_MAX)
            break;
        from_ns = to_ns + 1;
    }
}

static json_t *job_json(const struct run *run)
{
    const struct series *memory = run->job.signal[JOB_MEMORY];
    const struct samples_column columns[] = {
        {"job_low_bytes", memory, true},
        {"job_high_bytes", memory, false},
        {"unique_bytes", run->job.signal[JOB_UNIQUE], false},
        {"rss_sum_bytes", run->job.signal[JOB_RSS_SUM], false}};
    json_t *o = json_object();
    put_columns(o, columns, sizeof columns / sizeof *columns);
    return o;
}

static json_t *processes_json(const struct run *run)
{
    struct run_entity **all;
    size_t n = run_list(run, RUN_PROCESS, &all);
    json_t *list = json_array();
    for (size_t i = 0; i < n && json_array_size(list) < SAMPLES_PROCESSES; i++) {
        const struct run_entity *e = all[i];
        const struct samples_column rss = {"rss_bytes", e->signal[SAMPLE_RSS], false};
        if (!rss.series)
            continue;
        json_t *o = json_pack("{s:i,s:o,s:s}", "pid", (int)e->info.id.pid, "name",
                              json_text(e->info.comm, e->info.comm_len), "role",
                              process_role_name(e->info.role));
        put_columns(o, &rss, 1);
        json_array_append_new(list, o);
    }
    free(all);
    return list;
}

static json_t *gpus_json(const struct run *run)
{
    struct run_entity *const *gpus;
    size_t n = run_living(run, RUN_GPU, &gpus);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++) {
        const struct samples_column columns[] = {
            {"job_bytes", gpus[i]->signal[GPU_JOB], false},
            {"used_bytes", gpus[i]->signal[GPU_USED], false},
            {"allocated_bytes", gpus[i]->signal[GPU_ALLOCATED], false},
            {"reserved_bytes", gpus[i]->signal[GPU_RESERVED], false},
            {"outside_bytes", gpus[i]->signal[GPU_OUTSIDE], false}};
        if (!columns[0].series && !columns[1].series && !columns[2].series)
            continue;
        json_t *o =
            json_pack("{s:i,s:o}", "index", (int)gpus[i]->id, "name", json_text0(gpus[i]->name));
        put_columns(o, columns, sizeof columns / sizeof *columns);
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *mark_json(const struct run_mark *m)
{
    bool has_epoch = m->has & MARK_HAS_EPOCH && isfinite(m->epoch);
    return json_pack("{s:o,s:o,s:o,s:o}", "t_s", json_seconds(m->t_ns), "kind", json_text0(m->word),
                     "step", m->has & MARK_HAS_STEP ? json_integer(m->step) : json_null(), "epoch",
                     has_epoch ? json_real(m->epoch) : json_null());
}

/* Drops every second mark of the most frequent kind, repeatedly, until all marks fit into the
 * response. */
static void choose_strides(const struct run *run, size_t ret[MARK_KIND_COUNT])
{
    for (size_t total = SAMPLES_MARKS + 1; total > SAMPLES_MARKS;) {
        size_t most = 0, most_count = 0;
        total = 0;
        for (size_t kind = 0; kind < MARK_KIND_COUNT; kind++) {
            ret[kind] = ret[kind] ? ret[kind] : 1;
            size_t count = (run->marks[kind].count + ret[kind] - 1) / ret[kind];
            total += count;
            if (count > most_count) {
                most = kind;
                most_count = count;
            }
        }
        if (total > SAMPLES_MARKS)
            ret[most] *= 2;
    }
}

static json_t *marks_json(const struct run *run)
{
    json_t *list = json_array();
    size_t stride[MARK_KIND_COUNT] = {0};
    struct run_mark_cursor cursor = {{0}};
    const struct run_mark *m;
    choose_strides(run, stride);
    while ((m = run_mark_next(run, &cursor)))
        if ((cursor.at[m->kind] - 1) % stride[m->kind] == 0)
            json_array_append_new(list, mark_json(m));
    return list;
}

json_t *samples_json(const struct run *run)
{
    uint64_t limit;
    bool has_limit = run_value(&run->job, JOB_LIMIT, &limit);
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "t0_s",
                     run->start_wall_ns ? json_seconds(run->start_wall_ns) : json_null(), "until_s",
                     json_seconds(u64_min(run->tick_ns, run->options.to_ns)), "limit_bytes",
                     has_limit ? json_u64(limit) : json_null(), "series", job_json(run),
                     "processes", processes_json(run), "gpus", gpus_json(run), "marks",
                     marks_json(run));
}
