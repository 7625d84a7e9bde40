/* Writes a report as a page whose policy forbids loading anything from elsewhere. Also converts the
 * data of a report to JSON, for the script of that page and for `ebb report --json`. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/text.h"
#include "judge/cluster.h"
#include "present/assets.h"
#include "present/html.h"
#include "present/report_private.h"
#include "version.h"

enum {
    POINTS_OF_STEPS = 2000,
    PROCESSES_DRAWN = 8, /* number of processes drawn, the largest first */
    FIGURES_DRAWN = 24,
};

/* The form of the data. If PACKED, each number is the difference from the previous number, times
 * are in ms, and sizes are in KiB. Text from other programs is escaped as well, because the page
 * puts it into legends unchanged. */
struct data_writer {
    const struct run *run;
    bool is_packed;
    json_t *series;
};

#define X(sym, num, name, unit) [num] = (name),
static const char *const process_fields[SAMPLE_FIELDS_MAX] = {SAMPLE_PROCESS_FIELDS(X)};
static const char *const machine_fields[SAMPLE_FIELDS_MAX] = {SAMPLE_MACHINE_FIELDS(X)};
static const char *const gpu_fields[SAMPLE_FIELDS_MAX] = {SAMPLE_GPU_FIELDS(X)};
#undef X

static double seconds_of(uint64_t t_ns)
{
    return round((double)t_ns / (double)NS_PER_MS) / 1e3;
}

/* Returns a JSON string that the page shows unchanged, with control and bidirectional characters
 * escaped. */
static json_t *report_harmless(const char *raw)
{
    struct buf text = {0};
    text_escape(&text, raw ? raw : "", raw ? strlen(raw) : 0);
    json_t *o = raw ? json_string(buf_str(&text)) : json_null();
    buf_fini(&text);
    return o;
}

static json_t *data_text(bool is_packed, const char *raw)
{
    return is_packed ? report_harmless(raw) : json_text0(raw);
}

/* ---- series ---- */

/* Values of a damaged recording may be too large for an integer. They are capped, so that their
 * differences fit too. */
static json_int_t data_rounded(double value)
{
    return llround(fmin(value, 0x1p62));
}

static json_t *data_points(const struct series_point *points, size_t count, uint64_t unit,
                           bool is_packed)
{
    json_t *t = json_array(), *v = json_array();
    json_int_t last_t = 0, last_v = 0;
    for (size_t i = 0; i < count; i++) {
        json_int_t ms = llround((double)points[i].t_ns / (double)NS_PER_MS);
        json_int_t whole = data_rounded((double)points[i].v / (double)unit);
        json_array_append_new(t, is_packed ? json_integer(ms - last_t)
                                           : json_real(seconds_of(points[i].t_ns)));
        json_array_append_new(v, is_packed ? json_integer(whole - last_v) : json_u64(points[i].v));
        last_t = ms;
        last_v = whole;
    }
    return json_pack("{s:o,s:o}", "t", t, "v", v);
}

static void data_series(struct data_writer *w, const struct run_entity *e, unsigned signal,
                        const char *of, const char *field, const char *unit)
{
    const struct series *s = e->signal[signal];
    struct series_point *points = calloc(series_room(s) + 1, sizeof *points);
    size_t count = points ? series_points(s, points) : 0;
    struct buf name = {0};
    json_t *o = NULL;
    buf_add_str(&name, e->name);
    if (e->kind == RUN_FIGURE && e->info.id.pid)
        buf_printf(&name, "@%d", (int)e->info.id.pid);
    if (count)
        o = data_points(points, count, w->is_packed && strcmp(unit, "B") == 0 ? 1024 : 1,
                        w->is_packed);
    if (o) {
        json_object_set_new(o, "of", json_string(of));
        json_object_set_new(o, "field", json_string(field));
        json_object_set_new(o, "unit", json_string(unit));
        json_object_set_new(o, "id", json_integer(e->id));
        json_object_set_new(o, "name", data_text(w->is_packed, buf_str(&name)));
        if (e->kind == RUN_PROCESS)
            json_object_set_new(o, "pid", json_integer(e->info.id.pid));
        json_array_append_new(w->series, o);
    }
    buf_fini(&name);
    free(points);
}

static void data_processes(struct data_writer *w)
{
    static const unsigned drawn[] = {SAMPLE_RSS,  SAMPLE_ANON,   SAMPLE_FILE, SAMPLE_SHMEM,
                                     SAMPLE_SWAP, SAMPLE_UNIQUE, SAMPLE_GPU};
    struct run_entity **list;
    size_t count = run_list(w->run, RUN_PROCESS, &list);
    for (size_t i = 0; i < count && i < PROCESSES_DRAWN; i++)
        for (size_t k = 0; k < sizeof drawn / sizeof *drawn; k++)
            data_series(w, list[i], drawn[k], "process", process_fields[drawn[k]], "B");
    free(list);
}

static void data_figures(struct data_writer *w)
{
    struct run_entity **list;
    size_t count = run_list(w->run, RUN_FIGURE, &list);
    for (size_t i = 0; i < count && i < FIGURES_DRAWN; i++) {
        size_t len = strlen(list[i]->name);
        bool is_bytes = len > 6 && strcmp(list[i]->name + len - 6, "_bytes") == 0;
        data_series(w, list[i], 0, "figure", "value", is_bytes ? "B" : "");
    }
    free(list);
}

static json_t *data_all_series(const struct run *run, bool is_packed)
{
    static const unsigned machine[] = {MACHINE_AVAILABLE, MACHINE_PSI_SOME, MACHINE_LIMIT,
                                       MACHINE_CHARGE};
    static const unsigned gpu[] = {GPU_USED, GPU_JOB, GPU_ALLOCATED, GPU_RESERVED, GPU_OUTSIDE};
    struct data_writer w = {run, is_packed, json_array()};
    struct run_entity *const *gpus;
    data_series(&w, &run->job, JOB_TREE, "job", "tree_low", "B");
    for (size_t i = 0; i < sizeof machine / sizeof *machine; i++)
        data_series(&w, &run->machine, machine[i], "machine", machine_fields[machine[i]],
                    machine[i] == MACHINE_PSI_SOME ? "permyriad" : "B");
    size_t count = run_living(run, RUN_GPU, &gpus);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < sizeof gpu / sizeof *gpu; k++)
            data_series(&w, gpus[i], gpu[k], "gpu", gpu_fields[gpu[k]], "B");
    data_figures(&w);
    data_processes(&w);
    return w.series;
}

/* ---- events ---- */

/* Returns true for a mark of the first rank. Every rank sends the same steps, so the marks of
 * the others are not used. */
static bool is_first_rank(const struct run_mark *m)
{
    return !(m->has & MARK_HAS_RANK) || m->rank == 0;
}

/* Returns the steps. If there are too many, keeps only every Nth step. Also keeps every step at
 * which a restarted job continues at a lower number. */
static json_t *data_steps(const struct run *run, bool is_packed)
{
    const struct run_marks *l = &run->marks[MARK_STEP];
    struct series_point *points = calloc(l->count + 1, sizeof *points);
    size_t n = 0, every, kept = 0;
    for (size_t i = 0; points && i < l->count; i++)
        if (is_first_rank(&l->at[i]) && l->at[i].has & MARK_HAS_STEP && l->at[i].step >= 0)
            points[n++] = (struct series_point){l->at[i].t_ns, (uint64_t)l->at[i].step};
    every = n / POINTS_OF_STEPS + 1;
    for (size_t i = 0; i < n; i++) {
        bool is_turn = i + 1 == n || points[i].v > points[i + 1].v ||
                       (kept && points[i].v < points[kept - 1].v);
        if (i % every == 0 || is_turn)
            points[kept++] = points[i];
    }
    json_t *o = data_points(points, kept, 1, is_packed);
    free(points);
    return o;
}

static void data_event(json_t *list, const char *kind, uint64_t t_ns, bool has_step, int64_t step)
{
    json_array_append_new(list, json_pack("{s:s,s:f,s:o}", "kind", kind, "t", seconds_of(t_ns),
                                          "step", has_step ? json_integer(step) : json_null()));
}

size_t report_events(const struct run *run, enum mark_kind kind, const struct run_mark **ret)
{
    const struct run_marks *l = &run->marks[kind];
    size_t n = 0, count = 0;
    uint32_t segment = 0;
    /* step of the last stored mark; the job and the package may both mark the same epoch */
    int64_t last = -1;
    for (size_t i = 0; i < l->count; i++) {
        const struct run_mark *m = &l->at[i];
        int64_t step = m->has & MARK_HAS_STEP ? m->step : -1;
        for (; segment < run->segment_count && run->segments[segment] <= m->t_ns; segment++)
            last = -1;
        if (!is_first_rank(m) || (step >= 0 && step == last))
            continue;
        last = step;
        ret[count++] = m;
    }
    size_t every = (count + REPORT_EVENTS - 1) / REPORT_EVENTS;
    for (size_t i = 0; i < count; i += every)
        ret[n++] = ret[i];
    return n;
}

static json_t *data_events(const struct run *run)
{
    static const struct {
        enum mark_kind kind;
        const char *word;
    } kinds[] = {{MARK_EPOCH, "epoch"},
                 {MARK_EVAL, "evaluation"},
                 {MARK_SAVE, "checkpoint"},
                 {MARK_BEGIN, "begin"},
                 {MARK_END, "end"}};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct run_mark **marks =
            calloc(run->marks[kinds[i].kind].count + 1, sizeof(struct run_mark *));
        size_t n = marks ? report_events(run, kinds[i].kind, marks) : 0;
        for (size_t k = 0; k < n; k++)
            data_event(list, kinds[i].word, marks[k]->t_ns, marks[k]->has & MARK_HAS_STEP,
                       marks[k]->step);
        free(marks);
    }
    for (size_t i = 0; i < run->guard_count; i++)
        data_event(list, "guard", run->guard_notes[i].t_ns, false, 0);
    return list;
}

static json_t *data_phases(const struct run *run, bool is_packed)
{
    json_t *list = json_array();
    for (size_t i = 0; i < run->phase_count; i++) {
        const struct run_phase *p = &run->phases[i];
        json_array_append_new(list,
                              json_pack("{s:o,s:f,s:f}", "name", data_text(is_packed, p->name), "t",
                                        seconds_of(p->from_ns), "until", seconds_of(p->until_ns)));
    }
    return list;
}

static json_t *data_segments(const struct run *run)
{
    json_t *list = json_array();
    for (size_t i = 0; i < run->segment_count; i++)
        json_array_append_new(list, json_real(seconds_of(run->segments[i])));
    return list;
}

json_t *report_data(const struct run *run, bool is_packed)
{
    return json_pack("{s:f,s:o,s:o,s:o,s:o,s:o}", "span_s", (double)run->now_ns / (double)NS_PER_S,
                     "series", data_all_series(run, is_packed), "steps", data_steps(run, is_packed),
                     "events", data_events(run), "phases", data_phases(run, is_packed), "segments",
                     data_segments(run));
}

/* ---- ebb report --json ---- */

static json_t *report_process_json(const struct run_entity *e)
{
    static const struct {
        const char *key;
        unsigned field;
    } lasts[] = {{"rss_bytes", SAMPLE_RSS},     {"unique_bytes", SAMPLE_UNIQUE},
                 {"anon_bytes", SAMPLE_ANON},   {"file_bytes", SAMPLE_FILE},
                 {"shmem_bytes", SAMPLE_SHMEM}, {"swap_bytes", SAMPLE_SWAP},
                 {"gpu_bytes", SAMPLE_GPU}};
    const struct process_info *p = &e->info;
    const struct series *rss = e->signal[SAMPLE_RSS];
    json_t *o = json_pack(
        "{s:i,s:o,s:i,s:s,s:o,s:o,s:f,s:o,s:I,s:o,s:o}", "pid", (int)p->id.pid, "start_ticks",
        json_u64(p->id.start_ticks), "ppid", (int)p->ppid, "role", process_role_name(p->role),
        "name", json_text(p->comm, p->comm_len), "command",
        json_arguments(p->cmdline, p->cmdline_len), "born_s", (double)e->born_ns / (double)NS_PER_S,
        "died_s", e->is_dead ? json_real((double)e->died_ns / (double)NS_PER_S) : json_null(), "id",
        (json_int_t)e->id, "first_bytes", rss ? json_u64(rss->first.v) : json_null(), "peak_bytes",
        rss ? json_u64(e->peak_bytes) : json_null());
    for (size_t i = 0; o && i < sizeof lasts / sizeof *lasts; i++) {
        uint64_t v;
        bool has = run_value(e, lasts[i].field, &v);
        json_object_set_new(o, lasts[i].key, has ? json_u64(v) : json_null());
    }
    return o;
}

static json_t *report_processes_json(const struct run *run)
{
    struct run_entity **all;
    size_t count = run_list(run, RUN_PROCESS, &all);
    json_t *list = json_array();
    for (size_t i = 0; i < count && i < REPORT_PROCESSES; i++)
        json_array_append_new(list, report_process_json(all[i]));
    free(all);
    return list;
}

static json_t *guard_json(const struct run *run)
{
    size_t count = run->guard_count;
    json_t *list = json_array();
    for (size_t i = count > REPORT_GUARD_EVENTS ? count - REPORT_GUARD_EVENTS : 0; i < count; i++) {
        json_t *o = json_copy(run->guard_notes[i].doc);
        json_object_set_new(o, "t_s", json_real((double)run->guard_notes[i].t_ns / NS_PER_S));
        json_array_append_new(list, o);
    }
    return list;
}

static json_t *versions_json(const struct run *run)
{
    json_t *o = json_object();
    for (size_t i = 0; i < run->version_count; i++)
        json_object_set_new(o, run->versions[i].name, json_text0(run->versions[i].text));
    return o;
}

static json_t *data_json(const struct run *run)
{
    struct buf damage = {0};
    json_t *o = report_data(run, false);
    if (!o)
        return NULL;
    json_object_set_new(o, "processes", report_processes_json(run));
    json_object_set_new(o, "processes_seen", json_u64(run->processes_seen));
    json_object_set_new(o, "steps_seen", json_u64(run->steps_seen));
    json_object_set_new(o, "guard", guard_json(run));
    json_object_set_new(o, "guard_seen", json_u64(run->guard_seen));
    json_object_set_new(o, "versions", versions_json(run));
    report_add_damage(&damage, &run->damage);
    json_object_set_new(o, "damage", damage.len ? json_text(damage.data, damage.len) : json_null());
    buf_fini(&damage);
    return o;
}

static json_t *trouble_json(const struct report *r)
{
    json_t *list = json_array();
    for (size_t i = 0; i < r->trouble_count; i++)
        json_array_append_new(list, json_text0(r->trouble[i]));
    return list;
}

json_t *report_json(const struct report *r)
{
    json_t *header = r->recorded.run && r->recorded.run->header
                         ? json_incref(r->recorded.run->header)
                         : json_null();
    json_t *o = json_pack(
        "{s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "ebb", EBB_VERSION, "made",
        json_local_time(clock_wall_ns()), "path", json_text0(r->path), "title",
        json_text0(report_title(r)), "run",
        r->recorded.run_json ? json_incref(r->recorded.run_json) : json_null(), "header", header,
        "verdict", r->has_verdicts ? verdicts_json(&r->recorded.verdicts) : json_null(), "data",
        r->recorded.run ? data_json(r->recorded.run) : json_null(), "heap",
        r->has_heap ? profile_json(&r->heap) : json_null(), "trouble", trouble_json(r));
    if (o && r->has_gpu)
        json_object_set_new(o, "gpu_heap", profile_json(&r->gpu));
    if (o && r->heap_trouble)
        json_object_set_new(o, "heap_trouble", json_text0(r->heap_trouble));
    if (o && r->diagnosis)
        json_object_set_new(o, "diagnosis", diagnosis_json(r->diagnosis));
    if (o && r->cluster)
        json_object_set_new(o, "job", cluster_json(r->cluster));
    return o;
}

/* ---- the page ---- */

/* Packs a frame and its callees as {"n": name, "w": where, "b": bytes, "k": kind, "c": […]}. */
static json_t *pack_branch(const struct profile_branch *b)
{
    json_t *o = json_pack("{s:o,s:o}", "n", report_harmless(b->frame.function), "b",
                          json_u64(b->live_bytes));
    struct buf where = {0};
    if (!o)
        return NULL;
    if (b->frame.file && b->frame.has_line)
        buf_printf(&where, "%s:%u", b->frame.file, (unsigned)b->frame.line);
    else
        buf_add_str(&where, b->frame.file ? b->frame.file : b->frame.lib ? b->frame.lib : "");
    if (where.len)
        json_object_set_new(o, "w", report_harmless(buf_str(&where)));
    buf_fini(&where);
    if (b->frame.kind == NAME_PYTHON)
        json_object_set_new(o, "k", json_string("p"));
    if (b->n_children)
        json_object_set_new(o, "c", json_array());
    for (size_t i = 0; i < b->n_children; i++)
        json_array_append_new(json_object_get(o, "c"), pack_branch(&b->children[i]));
    return o;
}

/* Packs the process that the report is about: the growing process, or the largest process if none
 * grows. */
static json_t *pack_subject(const struct report *r)
{
    struct run_entity **list = NULL;
    json_t *pid = json_null();
    if (r->recorded.verdicts.has_grower && r->recorded.verdicts.grower.has_pid)
        return json_integer(r->recorded.verdicts.grower.pid);
    if (run_list(r->recorded.run, RUN_PROCESS, &list))
        pid = json_integer(list[0]->info.id.pid);
    free(list);
    return pid;
}

/* Packs the data for the page's script. Returns NULL if out of memory. */
static json_t *pack_run(const struct report *r)
{
    json_t *o = r->recorded.run ? report_data(r->recorded.run, true) : json_object();
    if (!o || !r->recorded.run)
        return o;
    json_object_set_new(o, "pid", pack_subject(r));
    if (r->has_heap && r->heap.has_tree)
        json_object_set_new(o, "flame", pack_branch(&r->heap.tree));
    if (r->has_gpu && r->gpu.has_tree)
        json_object_set_new(o, "flame_gpu", pack_branch(&r->gpu.tree));
    return o;
}

static int page_begin(struct buf *out, const char *title, const char *nonce)
{
    buf_printf(out,
               "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
               "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; "
               "script-src 'nonce-%s'; style-src 'nonce-%s'; img-src data:; base-uri 'none'; "
               "form-action 'none'\">\n"
               "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
               "<meta name=color-scheme content=\"light dark\">\n"
               "<meta name=referrer content=no-referrer>\n"
               "<link rel=icon href=\"data:,\">\n<title>",
               nonce, nonce);
    html_text0(out, title);
    buf_printf(out, " · ebb</title>\n<style nonce=%s>", nonce);
    int r = asset_unpack("report.css", out);
    buf_add_str(out, "</style>\n</head>\n<body>\n<main>\n");
    return r;
}

static int page_end(struct buf *out, const json_t *data, const char *nonce)
{
    struct buf js = {0};
    json_t *now = json_local_time(clock_wall_ns());
    buf_printf(out, "</main>\n<footer>made by ebb %s, %s</footer>\n", EBB_VERSION,
               json_is_string(now) ? json_string_value(now) : "");
    json_decref(now);
    int r = asset_unpack("report.js", &js);
    if (r == 0 && js.len) {
        buf_add_str(out, "<script type=\"application/json\" id=data>");
        r = html_json(out, data);
        buf_printf(out, "</script>\n<script nonce=%s>", nonce);
        buf_add(out, js.data, js.len);
        buf_add_str(out, "</script>\n");
    }
    buf_fini(&js);
    buf_add_str(out, "</body>\n</html>\n");
    return r;
}

int report_page(struct buf *out, const char *title, const struct doc *doc,
                const struct report *before, const struct report *after, const char *nonce)
{
    json_t *data = pack_run(before);
    if (after)
        data = json_pack("{s:[o,o]}", "runs", data, pack_run(after));
    if (!data)
        return -ENOMEM;
    int r = page_begin(out, title, nonce);
    doc_html(out, doc);
    if (r == 0)
        r = page_end(out, data, nonce);
    json_decref(data);
    return r < 0 ? r : out->failed ? -ENOMEM : 0;
}
