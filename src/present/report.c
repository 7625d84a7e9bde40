/* Builds the report of one run as a document: verdict, plots, diagnosis, heap, processes, guard,
 * machine. */
#include "present/report.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/number.h"
#include "judge/cluster.h"
#include "present/cluster.h"
#include "present/diagnose.h"
#include "present/document.h"
#include "present/cells.h"
#include "present/heap.h"
#include "present/report_private.h"
#include "present/summary.h"
#include "present/verdict.h"

enum { PROCESSES_SHOWN = 12, EVENTS_SHOWN = 20, GROWING_SHOWN = 3 };

/* ---- parts of a report ---- */

void report_fini(struct report *r)
{
    for (size_t i = 0; i < r->trouble_count; i++)
        free(r->trouble[i]);
    free(r->trouble);
    free(r->heap_trouble);
    recorded_fini(&r->recorded);
    profile_view_fini(&r->heap);
    profile_view_fini(&r->gpu);
    profile_view_fini(&r->gpu_failed);
    diagnosis_free(r->diagnosis);
    *r = (struct report){0};
}

void report_add_trouble(struct report *r, const char *sentence)
{
    char **more = reallocarray(r->trouble, r->trouble_count + 1, sizeof *more);
    char *copy = strdup(sentence);
    r->trouble = more ? more : r->trouble;
    if (more && copy)
        r->trouble[r->trouble_count++] = copy;
    else
        free(copy);
}

static const char *report_header(const struct report *r, const char *key)
{
    return r->recorded.run ? json_string_value(json_object_get(r->recorded.run->header, key))
                           : NULL;
}

/* Returns FROM_JSON if it is not NULL, else the value of KEY in the recording's header. */
static const char *report_about(const struct report *r, const char *from_json, const char *key)
{
    return from_json ? from_json : report_header(r, key);
}

const char *report_title(const struct report *r)
{
    const char *name = report_about(r, r->recorded.outcome.about.name, "name");
    return name ? name : r->path;
}

const char *report_cwd(const struct report *r)
{
    return report_about(r, r->recorded.outcome.about.cwd, "cwd");
}

const struct judged *report_verdict(const struct report *r)
{
    const struct verdicts *v = &r->recorded.verdicts;
    if (!r->has_verdicts)
        return NULL;
    return v->has_job ? &v->job : v->processes.count ? &v->processes.at[0] : NULL;
}

uint64_t report_peak(const struct report *r)
{
    const struct outcome_series *tree = &r->recorded.outcome.measured.tree.series;
    const struct judged *job = report_verdict(r);
    if (tree->has_peak_bytes)
        return tree->peak_bytes;
    if (r->recorded.run && run_peak(r->recorded.run))
        return run_peak(r->recorded.run);
    return job ? number_to_u64(job->result.peak_bytes) : 0;
}

double report_span_s(const struct report *r)
{
    return r->recorded.run ? (double)r->recorded.run->now_ns / (double)NS_PER_S
                           : r->recorded.outcome.measured.duration_s;
}

void report_add_damage(struct buf *out, const struct trace_reader_damage *damage)
{
    char size[TEXT_SIZE_MAX];
    size_t from = out->len;
    if (damage->bad_bytes)
        buf_printf(out, ", %s in the middle", text_size(size, damage->bad_bytes));
    if (damage->cut_bytes)
        buf_printf(out, ", %s of an incomplete block at the end",
                   text_size(size, damage->cut_bytes));
    if (damage->lost_blocks)
        buf_printf(out, ", %" PRIu64 " lost block%s", damage->lost_blocks,
                   damage->lost_blocks == 1 ? "" : "s");
    if (damage->unknown_blocks)
        buf_printf(out, ", %" PRIu64 " block%s of an unknown kind", damage->unknown_blocks,
                   damage->unknown_blocks == 1 ? "" : "s");
    if (out->len > from) { /* each item begins with a comma; the first comma is removed */
        memmove(out->data + from, out->data + from + 2, out->len - from - 2);
        out->len -= 2;
    }
}

/* ---- numbers ---- */

const char *report_time(char out[TEXT_TIME_MAX], double s)
{
    return s >= 0 && s < 9e9 ? text_duration(out, (uint64_t)(s * 1e9)) : "–";
}

static void add_size_fact(struct doc *d, const char *label, bool has, uint64_t bytes)
{
    char size[TEXT_SIZE_MAX];
    doc_figure(d, label);
    if (has)
        doc_text(d, TONE_PLAIN, text_size(size, bytes));
}

void report_add_rate(struct doc *d, const struct verdict_interval *rate, enum doc_tone range)
{
    char value[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    if (!rate->known)
        return;
    doc_text(d, TONE_PLAIN, known_change(value, true, rate->value));
    doc_textf(d, range, " (%s to %s)", known_change(low, true, rate->low),
              known_change(high, true, rate->high));
}

/* ---- the head ---- */

static void add_command(struct doc *d, const struct outcome_about *about, bool with_folder)
{
    struct buf text = {0};
    for (size_t i = 0; i < about->command_count; i++) {
        const char *word = about->command[i];
        const char *slash = word && i == 0 && !with_folder ? strrchr(word, '/') : NULL;
        buf_printf(&text, "%s%s", i ? " " : "", slash && slash[1] ? slash + 1 : word ? word : "");
    }
    if (text.len)
        doc_code_line(d, buf_str(&text));
    buf_fini(&text);
}

/* Adds the head of the report. Reports are published, so the head shows neither the host name nor
 * the program's path. */
static void add_head(struct doc *d, const struct report *r)
{
    const struct outcome *o = &r->recorded.outcome;
    char time[TEXT_TIME_MAX];
    doc_hide(d, DOC_MARKDOWN);
    doc_title(d, report_title(r));
    add_command(d, &o->about, true);
    doc_hide(d, DOC_TERMINAL | DOC_HTML);
    const struct judged *worst = r->has_verdicts ? verdict_worst(&r->recorded.verdicts) : NULL;
    struct buf title = {0};
    buf_printf(&title, "Memory: %s",
               verdict_word_name(worst ? worst->result.word : VERDICT_UNDECIDED));
    doc_title(d, buf_str(&title));
    buf_fini(&title);
    add_command(d, &o->about, false);
    doc_hide(d, 0);
    for (size_t i = 0; i < r->trouble_count; i++) {
        doc_point(d, POINT_TROUBLE);
        doc_text(d, TONE_PLAIN, r->trouble[i]);
    }
    doc_fact(d, "time");
    doc_itemf(
        d, TONE_PLAIN, "%s",
        report_time(time, o->measured.has_duration_s ? o->measured.duration_s : report_span_s(r)));
    if (o->about.started)
        doc_itemf(d, TONE_PLAIN, "started %s", o->about.started);
    if (outcome_is_running(o))
        doc_itemf(d, TONE_PLAIN, "still running when this report was created, or ebb was killed");
    doc_fact(d, "end");
    doc_text(d, TONE_PLAIN, o->end.cause);
}

/* Returns how many rows are shown as growing. Stops at the first row that did not certainly grow,
 * or whose verdict excludes a leak. */
static size_t growing_count(const struct profile_view *v)
{
    const double least = 1 << 20;
    size_t n = 0;
    while (n < v->n_rows && n < GROWING_SHOWN && v->rows[n].verdict.leak != VERDICT_LEAK_NO &&
           v->rows[n].growth_bytes - 2 * v->rows[n].growth_sigma_bytes > least)
        n++;
    return n;
}

const struct profile_view *report_worst_heap(const struct report *r)
{
    const struct verdicts *v = r->has_verdicts ? &r->recorded.verdicts : NULL;
    const struct judged *worst = verdict_worst(v);
    return r->has_gpu && worst && verdict_is_gpu(worst, v) ? &r->gpu : &r->heap;
}

struct summary report_summary(const struct report *r)
{
    const struct profile_view *heap = report_worst_heap(r);
    return (struct summary){
        .outcome = &r->recorded.outcome,
        .verdicts = r->has_verdicts ? &r->recorded.verdicts : NULL,
        .gpu_failure = r->gpu_failed.n_failures ? r->gpu_failed.failures : NULL,
        .gpu_failures = r->gpu_failures,
        .gpu_trouble = r->gpu_trouble,
        .growing = heap->rows,
        .n_growing = growing_count(heap),
        .diagnosis = r->diagnosis && r->diagnosis->has_grown ? r->diagnosis : NULL,
        .spark = r->recorded.run ? r->recorded.run->job.signal[JOB_TREE] : NULL};
}

static void add_verdict(struct doc *d, const struct report *r)
{
    const struct summary s = report_summary(r);
    const struct judged *worst = verdict_worst(s.verdicts);
    if (r->cluster && verdict_worst(&r->cluster->verdicts))
        worst = verdict_worst(&r->cluster->verdicts);
    doc_section(d, "verdict", worst ? verdict_tone(&worst->result) : TONE_OPEN, NULL);
    if (r->cluster)
        cluster_lead(d, r->cluster, &s, NULL);
    else
        summary_lead(d, &s, NULL);
    for (size_t i = 0; worst && i < worst->n_reasons; i++) {
        doc_point(d, POINT_PLAIN);
        doc_text(d, TONE_PLAIN, worst->reasons[i]);
    }
}

static void add_ranks(struct doc *d, const struct report *r)
{
    const struct cluster *c = r->cluster;
    if (!c)
        return;
    doc_section(d, "ranks", TONE_PLAIN, "Ranks");
    cluster_tables(d, c, REPORT_PROCESSES);
    if (c->worst_node >= c->n_nodes)
        return;
    doc_para(d, TONE_DIM);
    doc_textf(d, TONE_PLAIN, "Everything below refers to node %u.", c->nodes[c->worst_node].number);
}

static void add_figures(struct doc *d, const struct report *r)
{
    const struct judged *job = report_verdict(r);
    const struct outcome_measured *m = &r->recorded.outcome.measured;
    char first[TEXT_SIZE_MAX], last[TEXT_SIZE_MAX];
    doc_section(d, "figures", TONE_PLAIN, NULL);
    add_size_fact(d, "peak", report_peak(r) > 0, report_peak(r));
    doc_figure(d, "baseline, from start to end");
    if (job && job->result.has_floor)
        doc_textf(d, TONE_PLAIN, "%s → %s", known_size(first, true, job->result.floor_first_bytes),
                  known_size(last, true, job->result.floor_last_bytes));
    doc_figure(d, "growth per step");
    if (job)
        report_add_rate(d, &job->result.rate_bytes_per_step, TONE_DIM);
    doc_figure(d, "growth per minute");
    if (job)
        report_add_rate(d, &job->result.rate_bytes_per_min, TONE_DIM);
    doc_figure(d, "steps");
    if (r->recorded.run && r->recorded.run->steps_seen)
        doc_textf(d, TONE_PLAIN, "%" PRIu64, r->recorded.run->steps_seen);
    add_size_fact(d, "limit", m->has_limit && m->limit.has_limit_bytes, m->limit.limit_bytes);
    add_size_fact(d, "suggested memory request", m->has_ask_bytes, m->ask_bytes);
}

/* ---- plots ---- */

/* Collects the events of a plot, which are drawn as one letter each. */
static size_t add_plot_events(const struct run *run, struct doc_event *ret)
{
    static const struct {
        enum mark_kind kind;
        char letter;
    } kinds[] = {{MARK_EPOCH, 'E'}, {MARK_EVAL, 'e'}, {MARK_SAVE, 'c'}};
    size_t n = 0;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        const struct run_marks *all = &run->marks[kinds[i].kind];
        const struct run_mark **marks = calloc(all->count + 1, sizeof(struct run_mark *));
        size_t count = marks ? report_events(run, kinds[i].kind, marks) : 0;
        for (size_t k = 0; k < count; k++)
            ret[n++] = (struct doc_event){marks[k]->t_ns, kinds[i].letter};
        free(marks);
    }
    for (size_t i = 0; i < run->segment_count; i++)
        ret[n++] = (struct doc_event){run->segments[i], '|'};
    return n;
}

void report_add_plot(struct doc *d, const struct run *run, const struct series *s,
                     const char *title, uint64_t most)
{
    struct series_point *points = calloc(series_room(s) + 1, sizeof *points);
    struct doc_event *events = calloc(3 * REPORT_EVENTS + RUN_SEGMENTS, sizeof *events);
    if (points && events)
        doc_plot(d, &(struct doc_plot){.title = title,
                                       .span_ns = run->now_ns,
                                       .most = most,
                                       .points = points,
                                       .count = series_points(s, points),
                                       .events = events,
                                       .event_count = add_plot_events(run, events)});
    free(points);
    free(events);
}

static void add_plots(struct doc *d, const struct run *run)
{
    struct run_entity *const *gpus;
    if (!run || !run->ticks)
        return;
    doc_hide(d, DOC_MARKDOWN);
    doc_section(d, "memory", TONE_PLAIN, "Memory");
    doc_canvas(d, run->steps_seen > 1 ? "steps" : "plots");
    report_add_plot(d, run, run->job.signal[JOB_TREE], "memory of the job", 0);
    size_t count = run_living(run, RUN_GPU, &gpus);
    for (size_t i = 0; i < count; i++) {
        char title[64];
        snprintf(title, sizeof title, "memory of the job on GPU %" PRIu32, gpus[i]->id);
        report_add_plot(d, run, gpus[i]->signal[run_gpu_field(gpus[i])], title, 0);
    }
    doc_hide(d, 0);
}

/* ---- the heap ---- */

/* Adds a section with the call sites in V, or with the reason why they are unknown. */
static void add_heap(struct doc *d, const char *id, const char *title, const struct profile_view *v,
                     const char *trouble)
{
    if (!v && !trouble)
        return;
    doc_section(d, id, TONE_PLAIN, title);
    if (v) {
        heap_report_doc(d, v);
        return;
    }
    doc_para(d, TONE_DIM);
    doc_text(d, TONE_PLAIN, trouble);
}

/* ---- processes ---- */

static const struct doc_column process_columns[] = {
    {"pid", true, 0, CUT_END, 0, 0},       {"name", false, 1, CUT_END, 0, 16},
    {"role", false, 3, CUT_END, 0, 0},     {"peak", true, 2, CUT_END, 0, 0},
    {"last", true, 5, CUT_END, 0, 0},      {"unique", true, 6, CUT_END, 0, 0},
    {"anonymous", true, 8, CUT_END, 0, 0}, {"files", true, 9, CUT_END, 0, 0},
    {"shared", true, 10, CUT_END, 0, 0},   {"growth per minute", true, 7, CUT_END, 0, 0},
    {"verdict", false, 4, CUT_END, 0, 0},  {"command", false, 0, CUT_END, 16, 0}};

static void add_process(struct doc *d, const struct run_entity *e)
{
    static const unsigned fields[] = {SAMPLE_RSS, SAMPLE_UNIQUE, SAMPLE_ANON, SAMPLE_FILE,
                                      SAMPLE_SHMEM};
    const struct verdict_result *v = judge_result(e);
    const struct verdict_interval rate = v ? v->rate_bytes_per_min : (struct verdict_interval){0};
    struct buf command = {0};
    char size[TEXT_SIZE_MAX];
    doc_row(d);
    doc_cellf(d, TONE_PLAIN, "%" PRId32, e->info.id.pid);
    doc_cell(d, TONE_PLAIN, e->name);
    doc_cell(d, TONE_PLAIN, process_role_name(e->info.role));
    doc_cell(d, TONE_PLAIN, known_size(size, e->peak_bytes, (double)e->peak_bytes));
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        doc_cell(d, TONE_PLAIN,
                 known_size(size, sample_has(&e->last, fields[i]), (double)e->last.v[fields[i]]));
    doc_cell(d, TONE_PLAIN, known_change(size, rate.known, rate.value));
    doc_cell(d, v ? verdict_tone(v) : TONE_PLAIN, v ? verdict_word_name(v->word) : "–");
    doc_cell(d, TONE_PLAIN, NULL);
    buf_add(&command, e->info.cmdline, e->info.cmdline_len);
    for (size_t i = 0; i < command.len; i++)
        if (!command.data[i])
            command.data[i] = ' ';
    doc_code(d, buf_str(&command));
    buf_fini(&command);
}

static void add_process_table(struct doc *d, struct run_entity *const *list, size_t from,
                              size_t until)
{
    doc_table(d, NULL, "table of processes", process_columns,
              sizeof process_columns / sizeof *process_columns);
    for (size_t i = from; i < until; i++)
        add_process(d, list[i]);
}

/* Shows the largest processes. The others are in a fold, which is open when a page is printed. */
static void add_processes(struct doc *d, const struct report *r)
{
    const struct run *run = r->recorded.run;
    struct run_entity **list = NULL;
    size_t count = run ? run_list(run, RUN_PROCESS, &list) : 0;
    count = count < REPORT_PROCESSES ? count : REPORT_PROCESSES;
    size_t shown = count < PROCESSES_SHOWN ? count : PROCESSES_SHOWN;
    if (count || r->recorded.outcome.measured.process_count)
        doc_section(d, "processes", TONE_PLAIN, "Processes");
    if (!count)
        summary_processes(d, &r->recorded.outcome.measured);
    add_process_table(d, list, 0, shown);
    if (count > shown) {
        doc_fold(d, FOLD_GROUP);
        doc_textf(d, TONE_PLAIN, "%zu smaller processes", count - shown);
        add_process_table(d, list, shown, count);
        doc_fold_end(d);
    }
    if (count && run->processes_seen > count) {
        doc_para(d, TONE_DIM);
        doc_textf(d, TONE_PLAIN, "%" PRIu64 " processes in all; the table lists the largest.",
                  run->processes_seen);
    }
    free(list);
}

/* ---- the guard ---- */

/* Adds action I of the guard. Actions come from the recording, which has all of them, or from
 * run.json if there is no recording. */
static void add_act(struct doc *d, const struct report *r, size_t i)
{
    char time[TEXT_TIME_MAX];
    doc_row(d);
    if (r->recorded.run && r->recorded.run->guard_count) {
        static const char *const keys[] = {"act", "trigger", "why"};
        const struct run_note *note = &r->recorded.run->guard_notes[i];
        doc_cell(d, TONE_PLAIN, report_time(time, (double)note->t_ns / 1e9));
        for (size_t k = 0; k < 3; k++)
            doc_cell(d, TONE_PLAIN, json_string_value(json_object_get(note->doc, keys[k])));
        return;
    }
    const struct outcome_event *e = &r->recorded.outcome.guard.events[i];
    doc_cell(d, TONE_PLAIN, report_time(time, e->t_s));
    doc_cell(d, TONE_PLAIN, e->act);
    doc_cell(d, TONE_PLAIN, e->trigger);
    doc_cell(d, TONE_PLAIN, e->why);
}

static void add_acts(struct doc *d, const struct report *r, size_t from, size_t until)
{
    static const struct doc_column columns[] = {{"at", true, 0, CUT_END, 0, 0},
                                                {"act", false, 0, CUT_END, 0, 24},
                                                {"trigger", false, 1, CUT_END, 0, 24},
                                                {"why", false, 0, CUT_WRAP, 20, 0}};
    doc_table(d, NULL, "table of the guard's actions", columns, sizeof columns / sizeof *columns);
    for (size_t i = from; i < until; i++)
        add_act(d, r, i);
}

static void add_guard(struct doc *d, const struct report *r)
{
    const struct outcome_guard *guard = &r->recorded.outcome.guard;
    bool is_recorded = r->recorded.run && r->recorded.run->guard_count;
    size_t count = is_recorded ? r->recorded.run->guard_count : guard->event_count;
    size_t first = count > REPORT_GUARD_EVENTS ? count - REPORT_GUARD_EVENTS : 0;
    size_t from = count - first > EVENTS_SHOWN ? count - EVENTS_SHOWN : first;
    char size[TEXT_SIZE_MAX];
    if (!count && r->recorded.outcome.segment_count < 2)
        return;
    doc_section(d, "guard", TONE_PLAIN, "The guard");
    if (guard->has_limit_bytes) {
        doc_para(d, TONE_PLAIN);
        doc_textf(d, TONE_PLAIN, "The limit was %s%s.", text_size(size, guard->limit_bytes),
                  guard->dry_run
                      ? "; in this dry run, the guard only reported what it would have done"
                      : "");
    }
    summary_segments(d, &r->recorded.outcome, false);
    if (!count)
        return;
    doc_heading(d, "Actions");
    if (from > first) {
        doc_fold(d, FOLD_GROUP);
        doc_textf(d, TONE_PLAIN, "%zu earlier actions", from - first);
        add_acts(d, r, first, from);
        doc_fold_end(d);
    }
    add_acts(d, r, from, count);
    if (is_recorded && r->recorded.run->guard_seen > count - first) {
        doc_para(d, TONE_DIM);
        doc_textf(d, TONE_PLAIN, "%" PRIu64 " actions in all; the table lists the newest.",
                  r->recorded.run->guard_seen);
    }
}

/* ---- the machine ---- */

static void add_text_fact(struct doc *d, const char *label, const char *text)
{
    doc_fact(d, label);
    doc_text(d, TONE_PLAIN, text);
}

static void add_python(struct doc *d, uint32_t version)
{
    doc_fact(d, "python");
    if (version)
        doc_textf(d, TONE_PLAIN, "%u.%u.%u", version >> 24, version >> 16 & 0xff,
                  version >> 8 & 0xff);
}

static void add_versions(struct doc *d, const struct report *r)
{
    bool has_python = false;
    for (size_t i = 0; r->recorded.run && i < r->recorded.run->version_count; i++) {
        add_text_fact(d, r->recorded.run->versions[i].name, r->recorded.run->versions[i].text);
        has_python = has_python || strcmp(r->recorded.run->versions[i].name, "python") == 0;
    }
    if (!has_python)
        add_python(d, r->heap.cost.python_version);
}

static void add_machine(struct doc *d, const struct report *r)
{
    const struct outcome *o = &r->recorded.outcome;
    const struct outcome_measured *m = &o->measured;
    const char *ebb = report_about(r, o->about.ebb, "ebb");
    char size[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    doc_section(d, "machine", TONE_PLAIN, "Machine and recording");
    doc_hide(d, DOC_MARKDOWN);
    add_text_fact(d, "host", report_about(r, o->about.host, "host"));
    doc_hide(d, 0);
    add_text_fact(d, "kernel", report_about(r, o->about.kernel, "kernel"));
    add_text_fact(d, "architecture", report_header(r, "arch"));
    doc_fact(d, "limit");
    if (m->has_limit && m->limit.has_limit_bytes)
        doc_textf(d, TONE_PLAIN, "%s (%s%s%s)", text_size(size, m->limit.limit_bytes),
                  m->limit.kind ? m->limit.kind : "limit", m->limit.where ? ", " : "",
                  m->limit.where ? m->limit.where : "");
    for (size_t i = 0; i < m->gpu_count; i++) {
        char peak[TEXT_SIZE_MAX];
        doc_fact(d, "GPU");
        doc_itemf(d, TONE_PLAIN, "%s", m->gpus[i].name ? m->gpus[i].name : "GPU");
        doc_itemf(d, TONE_PLAIN, "%s",
                  known_size(size, m->gpus[i].has_total_bytes, (double)m->gpus[i].total_bytes));
        doc_itemf(
            d, TONE_PLAIN, "used by the job: at most %s",
            known_size(peak, m->gpus[i].has_job_peak_bytes, (double)m->gpus[i].job_peak_bytes));
    }
    add_versions(d, r);
    add_text_fact(d, "ebb", ebb ? ebb : "not recorded");
    doc_fact(d, "interval");
    if (m->has_interval_s)
        doc_textf(d, TONE_PLAIN, "%g s", m->interval_s);
    doc_fact(d, "recording");
    if (m->has_recording && m->recording.has_bytes)
        doc_text(d, TONE_PLAIN, text_size(size, m->recording.bytes));
    doc_fact(d, "ebb cost");
    if (m->has_cost && m->cost.has_cpu_s) {
        doc_itemf(d, TONE_PLAIN, "%s CPU (%.2f %% of one)", report_time(time, m->cost.cpu_s),
                  (double)m->cost.cpu_permyriad / 100);
        doc_itemf(d, TONE_PLAIN, "%s resident",
                  known_size(size, m->cost.has_rss_bytes, (double)m->cost.rss_bytes));
    }
    doc_hide(d, DOC_MARKDOWN);
    add_text_fact(d, "working directory", report_cwd(r));
    doc_hide(d, 0);
}

void report_document(struct doc *d, const struct report *r)
{
    add_head(d, r);
    add_verdict(d, r);
    add_ranks(d, r);
    add_figures(d, r);
    add_plots(d, r->recorded.run);
    if (r->diagnosis) {
        doc_section(d, "diagnosis", TONE_PLAIN, "Diagnosis");
        diagnose_doc(d, r->diagnosis, false, 0);
    }
    add_heap(d, "heap", "Live allocations by call site", r->has_heap ? &r->heap : NULL,
             r->heap_trouble);
    add_heap(d, "gpu", "GPU memory by call site", r->has_gpu ? &r->gpu : NULL, r->gpu_trouble);
    add_processes(d, r);
    add_guard(d, r);
    add_machine(d, r);
}
