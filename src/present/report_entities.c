/* What was read of processes, GPUs, the machine and the job's own figures, thinned for a report. */
#include "present/report_private.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"
#include "present/report_data.h"

enum { GONE_KEPT = REPORT_TABLE * 2 }; /* processes that have gone and still have their series */

#define X(sym, num, name, unit) [num] = (name),
static const char *const process_fields[SAMPLE_FIELDS_MAX] = {SAMPLE_PROCESS_FIELDS(X)};
static const char *const machine_fields[SAMPLE_FIELDS_MAX] = {SAMPLE_MACHINE_FIELDS(X)};
static const char *const gpu_fields[SAMPLE_FIELDS_MAX] = {SAMPLE_GPU_FIELDS(X)};
#undef X
#define BIT(field) (1u << (field))
/* What is drawn of each kind. */
static const uint32_t drawn[ENTITY_KINDS] = {
    [ENTITY_MACHINE] = BIT(MACHINE_TREE_LOW) | BIT(MACHINE_AVAILABLE) | BIT(MACHINE_LIMIT) |
                       BIT(MACHINE_PSI_SOME) | BIT(MACHINE_CHARGE),
    [ENTITY_PROCESS] = BIT(SAMPLE_RSS) | BIT(SAMPLE_ANON) | BIT(SAMPLE_FILE) | BIT(SAMPLE_SHMEM) |
                       BIT(SAMPLE_SWAP) | BIT(SAMPLE_UNIQUE) | BIT(SAMPLE_GPU),
    [ENTITY_GPU] = BIT(GPU_USED) | BIT(GPU_JOB),
    [ENTITY_SERIES] = BIT(0),
};

/* ---- keeping ---- */

static void entity_free(struct report_entity *e)
{
    for (size_t i = 0; e && i < SAMPLE_FIELDS_MAX; i++)
        curve_fini(&e->field[i]);
    if (e)
        free(e->process);
    free(e);
}

void report_entities_fini(struct report_entities *e)
{
    for (size_t i = 0; i < e->count; i++)
        entity_free(e->all[i]);
    free(e->all);
    *e = (struct report_entities){0};
}

static int order(const struct report_entity *e, enum sample_entity_kind kind, uint32_t id)
{
    return e->kind != kind ? (e->kind > kind) - (e->kind < kind) : (e->id > id) - (e->id < id);
}

/* Where it is, or where it would have to be. */
static size_t find(const struct report_entities *e, enum sample_entity_kind kind, uint32_t id)
{
    size_t low = 0, high = e->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order(e->all[middle], kind, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct report_entity *insert(struct report_entities *e, size_t at,
                                    enum sample_entity_kind kind, uint32_t id)
{
    struct report_entity *one = calloc(1, sizeof *one);
    if (e->count == e->cap && one) {
        size_t cap = e->cap ? e->cap * 2 : 32;
        struct report_entity **more = reallocarray(e->all, cap, sizeof(void *));
        if (!more) {
            free(one);
            one = NULL;
        } else {
            e->all = more;
            e->cap = cap;
        }
    }
    if (!one) {
        e->failed = true;
        return NULL;
    }
    memmove(e->all + at + 1, e->all + at, (e->count - at) * sizeof(void *));
    e->all[at] = one;
    e->count++;
    one->kind = kind;
    one->id = id;
    one->died_s = -1;
    return one;
}

static struct report_entity *entity(struct report_entities *e, enum sample_entity_kind kind,
                                    uint32_t id)
{
    size_t at = find(e, kind, id);
    if (at < e->count && order(e->all[at], kind, id) == 0)
        return e->all[at];
    return insert(e, at, kind, id);
}

static bool is_main_series(enum sample_entity_kind kind, unsigned field)
{
    return (kind == ENTITY_MACHINE && field == MACHINE_TREE_LOW) ||
           (kind == ENTITY_PROCESS && field == SAMPLE_RSS);
}

static void take(struct report_entity *e, unsigned field, double t_s, uint64_t v)
{
    struct curve *curve = &e->field[field];
    if (!(drawn[e->kind] & BIT(field)))
        return;
    if (!curve->most) {
        curve_init(curve, is_main_series(e->kind, field) ? REPORT_POINTS : REPORT_FINE_POINTS);
        e->first[field] = v;
    }
    curve_add(curve, t_s, (double)v);
    e->most[field] = v > e->most[field] ? v : e->most[field];
}

static void set_process(struct report_entities *all, struct report_entity *e, double t_s,
                        const struct process_info *info)
{
    if (!e->process) {
        e->process = malloc(sizeof *e->process);
        e->born_s = t_s;
        all->processes_seen++;
    }
    if (e->process)
        *e->process = *info;
    else
        all->failed = true;
}

void report_entities_tick(struct report_entities *e, double t_s, const struct trace_item *item)
{
    for (size_t i = 0; i < item->tick.count; i++) {
        const struct trace_row *row = &item->tick.rows[i];
        struct report_entity *one = row->kind < ENTITY_KINDS ? entity(e, row->kind, row->id) : NULL;
        if (!one)
            continue;
        if (row->kind == ENTITY_PROCESS)
            set_process(e, one, t_s, row->process);
        else if (row->name && row->name[0])
            text_fit(one->name, sizeof one->name, sizeof one->name - 1, row->name,
                     strlen(row->name));
        for (unsigned f = 0; f < SAMPLE_FIELDS_MAX; f++)
            if (row->sample.read & BIT(f))
                take(one, f, t_s, row->sample.v[f]);
        one->last = row->sample;
    }
}

/* Jobs may start a million short processes: of those that have gone only the largest stay. */
static void forget_small(struct report_entities *e)
{
    size_t gone = 0, least = 0;
    for (size_t i = 0; i < e->count; i++) {
        const struct report_entity *one = e->all[i];
        if (one->kind != ENTITY_PROCESS || one->died_s < 0)
            continue;
        if (gone++ == 0 || one->most[SAMPLE_RSS] < e->all[least]->most[SAMPLE_RSS])
            least = i;
    }
    if (gone <= GONE_KEPT)
        return;
    entity_free(e->all[least]);
    memmove(e->all + least, e->all + least + 1, (e->count - least - 1) * sizeof(void *));
    e->count--;
}

void report_entities_process(struct report_entities *e, double t_s, const struct trace_item *item)
{
    struct report_entity *one = entity(e, ENTITY_PROCESS, item->process.slot);
    if (!one)
        return;
    set_process(e, one, t_s, item->process.info);
    if (item->process.event != PROCESS_DIED)
        return;
    one->died_s = t_s;
    forget_small(e);
}

/* ---- telling ---- */

void report_points_json(const struct curve *curve, json_t *o)
{
    struct curve_point *points = calloc(curve_room(curve), sizeof *points);
    json_t *t = json_array(), *v = json_array();
    size_t n = points ? curve_points(curve, points) : 0;
    for (size_t i = 0; i < n; i++) {
        json_array_append_new(t, json_real(round(points[i].t * 1e3) / 1e3));
        json_array_append_new(v, json_count(points[i].v));
    }
    free(points);
    json_object_set_new(o, "t", t);
    json_object_set_new(o, "v", v);
}

static const char *field_name(const struct report_entity *e, unsigned field)
{
    switch (e->kind) {
    case ENTITY_MACHINE:
        return machine_fields[field];
    case ENTITY_PROCESS:
        return process_fields[field];
    case ENTITY_GPU:
        return gpu_fields[field];
    default:
        return "value";
    }
}

static const char *unit_of(const struct report_entity *e, unsigned field)
{
    size_t len = strlen(e->name);
    const char *at = strchr(e->name, '@');
    size_t end = at ? (size_t)(at - e->name) : len;
    if (e->kind == ENTITY_MACHINE && field == MACHINE_PSI_SOME)
        return "permyriad";
    if (e->kind != ENTITY_SERIES)
        return "B";
    return end > 6 && strncmp(e->name + end - 6, "_bytes", 6) == 0 ? "B" : "";
}

static void add_series(json_t *list, const struct report_entity *e, unsigned field)
{
    static const char *const kinds[ENTITY_KINDS] = {[ENTITY_MACHINE] = "machine",
                                                    [ENTITY_PROCESS] = "process",
                                                    [ENTITY_GPU] = "gpu",
                                                    [ENTITY_SERIES] = "figure"};
    bool is_job = e->kind == ENTITY_MACHINE && field == MACHINE_TREE_LOW;
    if (e->field[field].count == 0)
        return;
    json_t *o = json_pack(
        "{s:s,s:s,s:s,s:I,s:o}", "of", is_job ? "job" : kinds[e->kind], "field",
        field_name(e, field), "unit", unit_of(e, field), "id", (json_int_t)e->id, "name",
        e->process ? json_text(e->process->comm, e->process->comm_len) : json_text0(e->name));
    if (!o)
        return;
    if (e->process)
        json_object_set_new(o, "pid", json_integer(e->process->id.pid));
    report_points_json(&e->field[field], o);
    json_array_append_new(list, o);
}

static json_t *command_json(const struct process_info *p)
{
    json_t *list = json_array();
    for (size_t from = 0; from < p->cmdline_len;) {
        size_t len = strnlen(p->cmdline + from, p->cmdline_len - from);
        json_array_append_new(list, json_text(p->cmdline + from, len));
        from += len + 1;
    }
    return list;
}

static json_t *process_json(const struct report_entity *e)
{
    static const struct {
        const char *key;
        unsigned field;
    } lasts[] = {{"rss_bytes", SAMPLE_RSS},     {"unique_bytes", SAMPLE_UNIQUE},
                 {"anon_bytes", SAMPLE_ANON},   {"file_bytes", SAMPLE_FILE},
                 {"shmem_bytes", SAMPLE_SHMEM}, {"swap_bytes", SAMPLE_SWAP},
                 {"gpu_bytes", SAMPLE_GPU}};
    const struct process_info *p = e->process;
    json_t *o = json_pack(
        "{s:i,s:o,s:i,s:s,s:o,s:o,s:f,s:o,s:I}", "pid", (int)p->id.pid, "start_ticks",
        json_u64(p->id.start_ticks), "ppid", (int)p->ppid, "role", process_role_name(p->role),
        "name", json_text(p->comm, p->comm_len), "command", command_json(p), "born_s", e->born_s,
        "died_s", e->died_s < 0 ? json_null() : json_real(e->died_s), "id", (json_int_t)e->id);
    bool has_rss = e->field[SAMPLE_RSS].count > 0;
    if (!o)
        return NULL;
    json_object_set_new(o, "first_bytes", has_rss ? json_u64(e->first[SAMPLE_RSS]) : json_null());
    json_object_set_new(o, "peak_bytes", has_rss ? json_u64(e->most[SAMPLE_RSS]) : json_null());
    for (size_t i = 0; i < sizeof lasts / sizeof *lasts; i++)
        json_object_set_new(o, lasts[i].key,
                            sample_has(&e->last, lasts[i].field)
                                ? json_u64(e->last.v[lasts[i].field])
                                : json_null());
    return o;
}

static int by_peak(const void *a, const void *b)
{
    const struct report_entity *const *x = a, *const *y = b;
    uint64_t p = (*x)->most[SAMPLE_RSS], q = (*y)->most[SAMPLE_RSS];
    return p != q ? (p < q) - (p > q) : ((*x)->id > (*y)->id) - ((*x)->id < (*y)->id);
}

static void add_processes(const struct report_entities *e, json_t *doc, json_t *series)
{
    const struct report_entity **sorted = calloc(e->count + 1, sizeof(void *));
    json_t *table = json_array();
    size_t n = 0;
    for (size_t i = 0; sorted && i < e->count; i++)
        if (e->all[i]->kind == ENTITY_PROCESS && e->all[i]->process)
            sorted[n++] = e->all[i];
    if (n)
        qsort(sorted, n, sizeof(void *), by_peak);
    for (size_t i = 0; i < n && i < REPORT_TABLE; i++) {
        json_array_append_new(table, process_json(sorted[i]));
        for (unsigned f = 0; f < SAMPLE_FIELDS_MAX && i < REPORT_PROCESSES; f++)
            add_series(series, sorted[i], f);
    }
    free(sorted);
    json_object_set_new(doc, "processes", table);
    json_object_set_new(doc, "processes_seen", json_u64(e->processes_seen));
}

void report_entities_json(const struct report_entities *e, json_t *doc)
{
    json_t *series = json_array();
    size_t figures = 0;
    for (size_t i = 0; i < e->count; i++) {
        const struct report_entity *one = e->all[i];
        bool is_figure = one->kind == ENTITY_SERIES;
        if (one->kind == ENTITY_PROCESS || (is_figure && figures++ >= REPORT_FIGURES))
            continue;
        for (unsigned f = 0; f < SAMPLE_FIELDS_MAX; f++)
            add_series(series, one, f);
    }
    add_processes(e, doc, series);
    json_object_set_new(doc, "series", series);
}
