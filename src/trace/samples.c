/* Buckets of time that double their width when there are too many of them; the processes that turn
 * out to be small, and marks beyond what can be shown, are dropped on the way. */
#include "trace/samples.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "trace/reader.h"

enum {
    WIDTH = 4,            /* values of a point at most */
    FIRST_BUCKET_MS = 50, /* the shortest distance of samples */
    CANDIDATES = 128,     /* processes before the small ones are dropped, ... */
    CANDIDATES_KEPT = 64, /* ... and how many stay */
    GPUS = 64,
    MARKS_EACH = SAMPLES_MARKS / 2, /* of steps, and of all others */
};

/* One bucket of one series. */
struct point {
    uint32_t bucket;
    uint32_t known; /* bit per value */
    uint64_t v[WIDTH];
};

/* Of the values LOW keeps the smallest in a bucket, the others the largest. */
enum { LOW = 0, HIGH, UNIQUE, RSS_SUM };

struct series {
    bool has_low; /* v[0] is one */
    struct point *at;
    size_t count, cap;
};

struct process {
    uint32_t slot;
    struct process_info info;
    uint64_t peak_bytes;
    struct series rss;
};

struct kept_mark {
    uint64_t t_ns;
    uint32_t has;
    int64_t step;
    double epoch;
    char kind[24];
};

struct mark_list {
    struct kept_mark *at;
    size_t count, cap;
    uint64_t seen, stride;
};

struct gathering {
    const struct samples_options *options;
    uint64_t start_ns; /* the job's, on the recording's clock; may lie before its first item */
    uint64_t bucket_ns;
    uint64_t until_ns;
    bool has_limit;
    uint64_t limit_bytes;
    struct series job;
    struct process *processes;
    size_t process_count, process_cap;
    struct {
        bool is_there;
        char name[64];
        struct series used;
    } gpu[GPUS];
    struct mark_list steps, others;
    bool is_out_of_memory;
};

/* ---- points ---- */

static void merge(const struct series *s, struct point *into, const struct point *from)
{
    for (unsigned i = 0; i < WIDTH; i++) {
        if (!(from->known >> i & 1u))
            continue;
        bool is_first = !(into->known >> i & 1u);
        bool is_less = from->v[i] < into->v[i];
        if (is_first || (s->has_low && i == LOW ? is_less : !is_less))
            into->v[i] = from->v[i];
        into->known |= 1u << i;
    }
}

static int series_add(struct series *s, const struct point *p)
{
    if (s->count && s->at[s->count - 1].bucket == p->bucket) {
        merge(s, &s->at[s->count - 1], p);
        return 0;
    }
    if (s->count == s->cap) {
        size_t cap = s->cap ? s->cap * 2 : 16;
        struct point *at = reallocarray(s->at, cap, sizeof *at);
        if (!at)
            return -ENOMEM;
        s->at = at;
        s->cap = cap;
    }
    s->at[s->count++] = *p;
    return 0;
}

/* Two buckets become one. */
static void series_halve(struct series *s)
{
    size_t n = 0;
    for (size_t i = 0; i < s->count; i++) {
        struct point p = s->at[i];
        p.bucket /= 2;
        if (n && s->at[n - 1].bucket == p.bucket)
            merge(s, &s->at[n - 1], &p);
        else
            s->at[n++] = p;
    }
    s->count = n;
}

static void widen(struct gathering *g)
{
    g->bucket_ns *= 2;
    series_halve(&g->job);
    for (size_t i = 0; i < g->process_count; i++)
        series_halve(&g->processes[i].rss);
    for (size_t i = 0; i < GPUS; i++)
        series_halve(&g->gpu[i].used);
}

static uint32_t bucket_of(struct gathering *g, uint64_t t_ns)
{
    uint64_t since = t_ns - g->options->from_ns;
    while (since / g->bucket_ns >= g->options->points)
        widen(g);
    return (uint32_t)(since / g->bucket_ns);
}

/* ---- processes ---- */

static int larger_first(const void *a, const void *b)
{
    const struct process *x = a, *y = b;
    return (x->peak_bytes < y->peak_bytes) - (x->peak_bytes > y->peak_bytes);
}

/* A job may have had thousands: whoever was small so far begins anew should it grow. */
static void drop_small(struct gathering *g, size_t keep)
{
    if (!g->processes)
        return;
    qsort(g->processes, g->process_count, sizeof *g->processes, larger_first);
    while (g->process_count > keep)
        free(g->processes[--g->process_count].rss.at);
}

static struct process *find_process(struct gathering *g, const struct trace_row *row)
{
    for (size_t i = 0; i < g->process_count; i++)
        if (g->processes[i].slot == row->id)
            return &g->processes[i];
    if (g->process_count == CANDIDATES)
        drop_small(g, CANDIDATES_KEPT);
    if (g->process_count == g->process_cap) {
        size_t cap = g->process_cap ? g->process_cap * 2 : 16;
        struct process *p = reallocarray(g->processes, cap, sizeof *p);
        if (!p)
            return NULL;
        g->processes = p;
        g->process_cap = cap;
    }
    struct process *p = &g->processes[g->process_count++];
    *p = (struct process){.slot = row->id};
    return p;
}

/* ---- a tick ---- */

static bool is_read(const struct sample *s, unsigned field)
{
    return s->read >> field & 1u;
}

static void put(struct point *p, unsigned which, uint64_t v)
{
    p->v[which] = v;
    p->known |= 1u << which;
}

static void take_machine(struct gathering *g, const struct sample *s, struct point *job)
{
    unsigned field = is_read(s, MACHINE_CHARGE) ? MACHINE_CHARGE : MACHINE_TREE_LOW;
    if (is_read(s, field)) {
        put(job, LOW, s->v[field]);
        put(job, HIGH, s->v[field]);
    }
    if (sample_has(s, MACHINE_LIMIT)) {
        g->has_limit = true;
        g->limit_bytes = s->v[MACHINE_LIMIT];
    }
}

static void take_process(struct gathering *g, const struct trace_row *row, uint32_t bucket,
                         struct point *job)
{
    const struct sample *s = &row->sample;
    struct point point = {.bucket = bucket};
    if (sample_has(s, SAMPLE_UNIQUE))
        put(job, UNIQUE, (job->known >> UNIQUE & 1u ? job->v[UNIQUE] : 0) + s->v[SAMPLE_UNIQUE]);
    if (!is_read(s, SAMPLE_RSS))
        return;
    put(job, RSS_SUM, (job->known >> RSS_SUM & 1u ? job->v[RSS_SUM] : 0) + s->v[SAMPLE_RSS]);
    struct process *p = find_process(g, row);
    if (!p) {
        g->is_out_of_memory = true;
        return;
    }
    p->info = *row->process;
    if (s->v[SAMPLE_RSS] > p->peak_bytes)
        p->peak_bytes = s->v[SAMPLE_RSS];
    put(&point, 0, s->v[SAMPLE_RSS]);
    g->is_out_of_memory |= series_add(&p->rss, &point) < 0;
}

static void take_gpu(struct gathering *g, const struct trace_row *row, uint32_t bucket)
{
    const struct sample *s = &row->sample;
    struct point point = {.bucket = bucket};
    if (row->id >= GPUS)
        return;
    if (is_read(s, GPU_JOB))
        put(&point, 0, s->v[GPU_JOB]);
    if (is_read(s, GPU_USED))
        put(&point, 1, s->v[GPU_USED]);
    if (!point.known)
        return;
    g->gpu[row->id].is_there = true;
    strncpy(g->gpu[row->id].name, row->name, sizeof g->gpu[0].name - 1);
    g->is_out_of_memory |= series_add(&g->gpu[row->id].used, &point) < 0;
}

static void take_tick(struct gathering *g, const struct trace_item *item, uint64_t t_ns)
{
    uint32_t bucket = bucket_of(g, t_ns);
    struct point job = {.bucket = bucket};
    for (size_t i = 0; i < item->tick.count; i++) {
        const struct trace_row *row = &item->tick.rows[i];
        if (row->kind == ENTITY_MACHINE)
            take_machine(g, &row->sample, &job);
        else if (row->kind == ENTITY_PROCESS)
            take_process(g, row, bucket, &job);
        else if (row->kind == ENTITY_GPU)
            take_gpu(g, row, bucket);
    }
    if (job.known)
        g->is_out_of_memory |= series_add(&g->job, &job) < 0;
    g->until_ns = t_ns;
}

/* ---- marks ---- */

/* Each STRIDE-th of what was seen is there; when there is no room, every other one goes. */
static int mark_add(struct mark_list *l, const struct kept_mark *mark)
{
    l->stride = l->stride ? l->stride : 1;
    if (l->seen++ % l->stride)
        return 0;
    if (l->count == MARKS_EACH) {
        for (size_t i = 0; i < MARKS_EACH / 2; i++)
            l->at[i] = l->at[2 * i];
        l->count = MARKS_EACH / 2;
        l->stride *= 2;
        if ((l->seen - 1) % l->stride)
            return 0;
    }
    if (l->count == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 16;
        struct kept_mark *at = reallocarray(l->at, cap, sizeof *at);
        if (!at)
            return -ENOMEM;
        l->at = at;
        l->cap = cap;
    }
    l->at[l->count++] = *mark;
    return 0;
}

static void take_mark(struct gathering *g, const struct mark *m, uint64_t t_ns)
{
    struct kept_mark kept = {.t_ns = t_ns, .has = m->has, .step = m->step, .epoch = m->epoch};
    bool is_step = m->kind == MARK_STEP || m->kind == MARK_SUBSTEP;
    size_t len = 0;
    const char *word = mark_get(m, "KIND", &len);
    if (m->kind == MARK_SERIES || m->kind == MARK_HELLO || m->kind == MARK_ACK)
        return;
    memcpy(kept.kind, word ? word : "", len < sizeof kept.kind ? len : sizeof kept.kind - 1);
    g->is_out_of_memory |= mark_add(is_step ? &g->steps : &g->others, &kept) < 0;
}

/* ---- the document ---- */

static json_t *time_json(const struct gathering *g, const struct point *p)
{
    return json_seconds(g->options->from_ns + p->bucket * g->bucket_ns + g->bucket_ns / 2);
}

static json_t *times_json(const struct gathering *g, const struct series *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->count; i++)
        json_array_append_new(list, time_json(g, &s->at[i]));
    return list;
}

static json_t *values_json(const struct series *s, unsigned which)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->count; i++) {
        const struct point *p = &s->at[i];
        json_array_append_new(list, p->known >> which & 1u ? json_u64(p->v[which]) : json_null());
    }
    return list;
}

static json_t *processes_json(struct gathering *g)
{
    json_t *list = json_array();
    drop_small(g, SAMPLES_PROCESSES);
    for (size_t i = 0; i < g->process_count; i++) {
        const struct process *p = &g->processes[i];
        json_array_append_new(list, json_pack("{s:i,s:o,s:s,s:o,s:o}", "pid", (int)p->info.id.pid,
                                              "name", json_text(p->info.comm, p->info.comm_len),
                                              "role", process_role_name(p->info.role), "t_s",
                                              times_json(g, &p->rss), "rss_bytes",
                                              values_json(&p->rss, 0)));
    }
    return list;
}

static json_t *gpus_json(const struct gathering *g)
{
    json_t *list = json_array();
    for (size_t i = 0; i < GPUS; i++)
        if (g->gpu[i].is_there)
            json_array_append_new(list, json_pack("{s:i,s:o,s:o,s:o,s:o}", "index", (int)i, "name",
                                                  json_text0(g->gpu[i].name), "t_s",
                                                  times_json(g, &g->gpu[i].used), "job_bytes",
                                                  values_json(&g->gpu[i].used, 0), "used_bytes",
                                                  values_json(&g->gpu[i].used, 1)));
    return list;
}

static json_t *mark_json(const struct kept_mark *m)
{
    bool has_epoch = m->has & MARK_HAS_EPOCH && isfinite(m->epoch);
    return json_pack("{s:o,s:o,s:o,s:o}", "t_s", json_seconds(m->t_ns), "kind", json_text0(m->kind),
                     "step", m->has & MARK_HAS_STEP ? json_integer(m->step) : json_null(), "epoch",
                     has_epoch ? json_real(m->epoch) : json_null());
}

/* Both lists in order of time. */
static json_t *marks_json(const struct gathering *g)
{
    json_t *list = json_array();
    const struct mark_list *a = &g->steps, *b = &g->others;
    for (size_t i = 0, k = 0; i < a->count || k < b->count;) {
        bool is_step = k == b->count || (i < a->count && a->at[i].t_ns <= b->at[k].t_ns);
        json_array_append_new(list, mark_json(is_step ? &a->at[i++] : &b->at[k++]));
    }
    return list;
}

static json_t *document(struct gathering *g, uint64_t t0_wall_ns)
{
    json_t *series = json_pack(
        "{s:o,s:o,s:o,s:o,s:o}", "t_s", times_json(g, &g->job), "job_low_bytes",
        values_json(&g->job, LOW), "job_high_bytes", values_json(&g->job, HIGH), "unique_bytes",
        values_json(&g->job, UNIQUE), "rss_sum_bytes", values_json(&g->job, RSS_SUM));
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "t0_s",
                     t0_wall_ns ? json_seconds(t0_wall_ns) : json_null(), "until_s",
                     json_seconds(g->until_ns), "limit_bytes",
                     g->has_limit ? json_u64(g->limit_bytes) : json_null(), "series", series,
                     "processes", processes_json(g), "gpus", gpus_json(g), "marks", marks_json(g));
}

/* ---- */

static void gathering_fini(struct gathering *g)
{
    free(g->job.at);
    for (size_t i = 0; i < g->process_count; i++)
        free(g->processes[i].rss.at);
    for (size_t i = 0; i < GPUS; i++)
        free(g->gpu[i].used.at);
    free(g->processes);
    free(g->steps.at);
    free(g->others.at);
}

/* What was before the job's start (the recording begins a moment earlier) counts as at it. */
static void take_item(struct gathering *g, const struct trace_item *item)
{
    uint64_t t_ns = item->t_ns > g->start_ns ? item->t_ns - g->start_ns : 0;
    if (t_ns < g->options->from_ns || t_ns > g->options->to_ns)
        return;
    if (item->kind == TRACE_TICK)
        take_tick(g, item, t_ns);
    else if (item->kind == TRACE_MARK)
        take_mark(g, &item->mark, t_ns);
}

static uint64_t first_bucket(const struct samples_options *o)
{
    uint64_t least = FIRST_BUCKET_MS * NS_PER_MS;
    uint64_t span = o->to_ns == UINT64_MAX || o->to_ns < o->from_ns ? 0 : o->to_ns - o->from_ns + 1;
    uint64_t each = span / o->points + (span % o->points ? 1 : 0);
    return each > least ? each : least;
}

int samples_read(struct trace_reader *r, const struct samples_options *options, json_t **ret)
{
    struct gathering *g = calloc(1, sizeof *g);
    struct trace_item item;
    int rc = 0;
    if (!g)
        return -ENOMEM;
    uint64_t wall_ns = trace_reader_start_wall_ns(r);
    uint64_t t0_ns = options->t0_wall_ns ? options->t0_wall_ns : wall_ns;
    g->options = options;
    g->job.has_low = true;
    g->bucket_ns = first_bucket(options);
    g->start_ns = trace_reader_start_mono_ns(r);
    /* clocks may have been set between: a start far from the recording's is none of its */
    if (wall_ns && t0_ns > wall_ns && t0_ns - wall_ns < 60 * NS_PER_S)
        g->start_ns += t0_ns - wall_ns;
    while (!g->is_out_of_memory && (rc = trace_reader_next(r, &item)) > 0)
        take_item(g, &item);
    if (g->is_out_of_memory)
        rc = -ENOMEM;
    json_t *doc = rc == 0 ? document(g, t0_ns) : NULL;
    gathering_fini(g);
    free(g);
    if (rc < 0 || !doc)
        return rc < 0 ? rc : -ENOMEM;
    *ret = doc;
    return 0;
}
