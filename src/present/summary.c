/* Renders the end of a run as a document. */
#include "present/summary.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/text.h"
#include "judge/verdicts.h"
#include "present/cells.h"
#include "present/diagnose.h"
#include "present/document.h"
#include "present/heap.h"
#include "present/chart.h"
#include "present/verdict.h"
#include "profile/view.h"
#include "run/earlier.h"
#include "run/outcome.h"
#include "run/series.h"

enum { PROCESSES_SHOWN = 8, COMMAND_COLUMNS = 18, GPUS_SHOWN = 4, NAME_COLUMNS = 40 };
enum { SPARK_COLUMNS = 12 };

/* Adds "BEFORE 1.20 GiB AFTER" if the value is known. */
static void summary_item(struct doc *d, enum doc_tone tone, const char *before, bool has,
                         uint64_t bytes, const char *after)
{
    char size[TEXT_SIZE_MAX];
    if (has)
        doc_itemf(d, tone, "%s%s%s", before, text_size(size, bytes), after);
}

/* ---- how the run ended ---- */

void summary_add_end(struct buf *out, const struct outcome *o)
{
    const struct outcome_end *end = &o->end;
    bool is_machine = !o->measured.has_tree;
    char time[TEXT_TIME_MAX];
    const char *state = end->kind == OUTCOME_GONE ? "the job ended; "
                        : end->kind == OUTCOME_WATCH_ENDED && !is_machine
                            ? "the job is still running; "
                            : "";
    bool is_watch = end->kind == OUTCOME_GONE || end->kind == OUTCOME_WATCH_ENDED;
    const char *how = !is_watch           ? "finished in"
                      : o->about.attached ? "attached for"
                                          : "watched for";
    /* the lead of a failed run already contains the time and the step */
    bool has_failed = summary_has_failed(o);
    if (o->measured.has_duration_s && !has_failed)
        buf_printf(out, "%s%s %s", state, how, text_about_time(time, o->measured.duration_s));
    const struct outcome_marks *marks = &o->measured.marks;
    bool is_bar = marks->source && strcmp(marks->source, "tqdm") == 0;
    if (marks->has_last_step && !has_failed)
        buf_printf(out, "%s%lld steps%s", out->len ? ", " : "", (long long)marks->last_step,
                   is_bar ? " of a tqdm bar" : "");
    if (end->by && end->kind == OUTCOME_WATCH_ENDED)
        buf_printf(out, ", stopped by %s", end->by);
    if (end->left_behind)
        buf_printf(out, "%s%llu process%s left over and killed", out->len ? ", " : "",
                   (unsigned long long)end->left_behind, end->left_behind == 1 ? "" : "es");
}

const char *summary_path(const char *path)
{
    char cwd[PATH_MAX];
    return path_below(path, getcwd(cwd, sizeof cwd));
}

static void summary_put_run(struct doc *d, const struct outcome *o)
{
    const struct outcome_recording *r = &o->measured.recording;
    struct buf text = {0};
    summary_add_end(&text, o);
    doc_fact(d, o->about.run_dir ? "recording" : "run");
    if (o->about.run_dir)
        doc_itemf(d, TONE_PLAIN, "%s", summary_path(o->about.run_dir));
    if (text.len)
        doc_itemf(d, TONE_PLAIN, "%s", buf_str(&text));
    buf_fini(&text);
    if (r->error)
        doc_itemf(d, TONE_BAD, "incomplete: %s", r->error);
    if (r->blocks_lost)
        doc_itemf(d, TONE_BAD, "%llu blocks lost", (unsigned long long)r->blocks_lost);
}

/* ---- memory ---- */

static void summary_put_memory(struct doc *d, const struct outcome_tree *t)
{
    char first[TEXT_SIZE_MAX], last[TEXT_SIZE_MAX], rate[CELL_MAX];
    const struct outcome_series *s = &t->series;
    doc_fact(d, "memory");
    summary_item(d, TONE_PLAIN, "start ", s->has_start_bytes, s->start_bytes, "");
    summary_item(d, TONE_PLAIN, "mean ", s->has_mean_bytes, s->mean_bytes, "");
    summary_item(d, TONE_STRONG, "peak ", s->has_peak_bytes, s->peak_bytes, "");
    summary_item(d, TONE_PLAIN, "end ", s->has_end_bytes, s->end_bytes, "");
    /* if there are too few samples for a growth rate, the baseline is unknown as well */
    doc_fact(d, "baseline");
    if (s->has_rate_bytes_per_min && s->floor_bytes.has_first && s->floor_bytes.has_last)
        doc_itemf(d, TONE_PLAIN, "%s → %s", text_size(first, s->floor_bytes.first),
                  text_size(last, s->floor_bytes.last));
    if (s->has_rate_bytes_per_min && s->has_growth_bytes)
        doc_itemf(d, TONE_PLAIN, "growth %s", text_size_signed(first, s->growth_bytes));
    if (s->has_rate_bytes_per_min)
        doc_itemf(d, TONE_PLAIN, "rate %s", cell_rate_text(rate, s->rate_bytes_per_min));
    doc_fact(d, "sharing");
    summary_item(d, TONE_PLAIN, "", t->has_unique_bytes, t->unique_bytes, " unique to one process");
    summary_item(d, TONE_PLAIN, "", t->has_shared_bytes, t->shared_bytes, " shared, counted once");
}

/* ---- processes ---- */

/* Adds, for example, "20 compile workers (up to 398 MiB each, 3.10 GiB unique)". */
static void summary_put_role(struct doc *d, const struct outcome_role *r)
{
    char size[TEXT_SIZE_MAX];
    size_t len = strlen(r->role);
    bool is_one = r->count == 1, has_unique = !is_one && r->has_unique_bytes;
    bool takes_s =
        !is_one && len > 2 && strcmp(r->role + len - 2, "er") == 0 && strcmp(r->role, "other") != 0;
    doc_itemf(d, TONE_PLAIN, "%llu %s%s", (unsigned long long)r->count, r->role,
              takes_s ? "s" : "");
    if (!r->has_largest_bytes && !has_unique)
        return;
    doc_text(d, TONE_PLAIN, " (");
    if (r->has_largest_bytes)
        doc_textf(d, TONE_PLAIN, is_one ? "%s" : "up to %s each",
                  text_size(size, r->largest_bytes));
    if (has_unique)
        doc_textf(d, TONE_PLAIN, "%s%s unique", r->has_largest_bytes ? ", " : "",
                  text_size(size, r->unique_bytes));
    doc_text(d, TONE_PLAIN, ")");
}

static void summary_put_roles(struct doc *d, const struct outcome_measured *m)
{
    char size[TEXT_SIZE_MAX];
    const struct outcome_largest *l = &m->largest;
    doc_fact(d, "processes");
    if (m->role_count && m->has_processes_seen)
        doc_itemf(d, TONE_PLAIN, "%llu in all", (unsigned long long)m->processes_seen);
    for (size_t i = 0; i < m->role_count; i++)
        summary_put_role(d, &m->roles[i]);
    doc_fact(d, "largest");
    if (l->has_peak_bytes)
        doc_itemf(d, TONE_PLAIN, "%s in %.30s %d (%s)", text_size(size, l->peak_bytes),
                  l->name ? l->name : "", (int)l->pid, l->role);
}

/* Adds the command without the folders of absolute paths, or the name if there is no command. A
 * forked worker has its parent's command line. If the worker has a name of its own, that name comes
 * first. A name counts as its own only if neither the name nor the command begins with the other,
 * because the kernel truncates names to 15 bytes. */
static void summary_put_command(struct doc *d, const struct outcome_process *p)
{
    const char *name = p->name ? p->name : "", *base = "";
    doc_cell(d, TONE_PLAIN, p->command_count ? "" : name);
    for (size_t i = 0; i < p->command_count; i++) {
        const char *word = p->command[i], *slash = word[0] == '/' ? strrchr(word, '/') : NULL;
        base = slash && slash[1] ? slash + 1 : word;
        if (i == 0 && name[0] && strncmp(base, name, strlen(name)) != 0 &&
            strncmp(name, base, strlen(base)) != 0)
            doc_textf(d, TONE_PLAIN, "%s: ", name);
        doc_textf(d, TONE_PLAIN, "%s%s", i ? " " : "", base);
    }
}

void summary_processes(struct doc *d, const struct outcome_measured *m)
{
    static const struct doc_column columns[] = {
        {.title = "PID", .is_number = true, .priority = 1},
        {.title = "ROLE", .priority = 3},
        {.title = "START", .is_number = true, .priority = 9},
        {.title = "BASE", .is_number = true, .priority = 8},
        {.title = "MEAN", .is_number = true, .priority = 10},
        {.title = "PEAK", .is_number = true, .priority = 2},
        {.title = "END", .is_number = true, .priority = 6},
        {.title = "GROWTH", .is_number = true, .priority = 5},
        {.title = "RATE/min", .is_number = true, .priority = 4},
        {.title = "UNIQUE", .is_number = true, .priority = 7},
        {.title = "COMMAND", .least = COMMAND_COLUMNS},
    };
    char cell[CELL_MAX], size[TEXT_SIZE_MAX];
    size_t shown = m->process_count < PROCESSES_SHOWN ? m->process_count : PROCESSES_SHOWN;
    if (!shown)
        return;
    doc_space(d);
    doc_table(d, NULL, "processes", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < shown; i++) {
        const struct outcome_process *p = &m->processes[i];
        const struct outcome_series *s = &p->series;
        doc_row(d);
        doc_cellf(d, TONE_PLAIN, "%d", (int)p->pid);
        doc_cell(d, TONE_PLAIN, p->role[0] ? p->role : "–");
        doc_cell(d, TONE_PLAIN, cell_known(cell, s->has_start_bytes, s->start_bytes));
        doc_cell(d, TONE_PLAIN, cell_known(cell, s->floor_bytes.has_last, s->floor_bytes.last));
        doc_cell(d, TONE_PLAIN, cell_known(cell, s->has_mean_bytes, s->mean_bytes));
        doc_cell(d, TONE_STRONG, cell_known(cell, s->has_peak_bytes, s->peak_bytes));
        doc_cell(d, TONE_PLAIN, cell_known(cell, s->has_end_bytes, s->end_bytes));
        doc_cell(d, TONE_PLAIN, cell_rate(cell, s->has_growth_bytes, (double)s->growth_bytes));
        doc_cell(d, TONE_PLAIN, cell_rate(cell, s->has_rate_bytes_per_min, s->rate_bytes_per_min));
        doc_cell(d, TONE_PLAIN, cell_known(cell, p->has_unique_bytes, p->unique_bytes));
        summary_put_command(d, p);
    }
    uint64_t all = m->has_processes_seen ? m->processes_seen : m->process_count;
    if (all > shown) {
        bool has_next = shown < m->process_count && m->processes[shown].series.has_peak_bytes;
        doc_para(d, TONE_DIM);
        doc_textf(d, TONE_DIM, "and %llu more", (unsigned long long)(all - shown));
        if (has_next)
            doc_textf(d, TONE_DIM, ", the largest %s",
                      text_size(size, m->processes[shown].series.peak_bytes));
    }
    doc_space(d);
}

/* ---- the suggested memory request ---- */

enum request_words request_words_here(void)
{
    return getenv("KUBERNETES_SERVICE_HOST") && !getenv("SLURM_JOB_ID") ? REQUEST_KUBERNETES
                                                                        : REQUEST_SLURM;
}

/* Rounds BYTES up to a size that the scheduler accepts. Slurm's units are binary, but have no
 * "i". */
static char *request_size(char out[TEXT_SIZE_MAX], double bytes, enum request_words words)
{
    const double mib = 1 << 20;
    const char *i = words == REQUEST_KUBERNETES ? "i" : "";
    if (bytes > 4000 * mib)
        snprintf(out, TEXT_SIZE_MAX, "%.0fG%s", ceil(bytes / (1024 * mib)), i);
    else
        snprintf(out, TEXT_SIZE_MAX, "%.0fM%s", 50 * ceil(bytes / (50 * mib)), i);
    return out;
}

void request_put(struct doc *d, const struct request *r)
{
    char now[TEXT_SIZE_MAX], size[TEXT_SIZE_MAX];
    if (!(r->bytes > 0))
        return;
    doc_fact(d, "request");
    doc_textf(d, TONE_PLAIN, "%s%s",
              r->words == REQUEST_KUBERNETES ? "resources.limits.memory: " : "--mem=",
              request_size(now, r->bytes, r->words));
    if (r->is_per_node)
        doc_text(d, TONE_PLAIN, r->words == REQUEST_KUBERNETES ? " per pod" : " per node");
    if (r->runs > 1)
        doc_textf(d, TONE_PLAIN, ", enough for 98 %% of the last %zu runs of this command",
                  r->runs);
    if (!r->is_leak)
        return;
    if (r->steps > 0)
        doc_textf(d, TONE_PLAIN, " for %lld steps", (long long)r->steps);
    doc_text(d, TONE_PLAIN, " as it is");
    if (r->planned_bytes > 0)
        doc_textf(d, TONE_PLAIN, ", %s for all %lld",
                  request_size(size, r->planned_bytes, r->words), (long long)r->planned_steps);
    if (r->fixed_bytes > 0 && strcmp(request_size(size, r->fixed_bytes, r->words), now) != 0)
        doc_textf(d, TONE_PLAIN, ", %s once fixed", size);
}

/* Returns the growth that a fix would save. If the job reports no steps, its growth includes
 * start-up, so the growth of leaking call sites is used instead. */
static double leaked_bytes(const struct summary *s)
{
    double growth = (double)s->outcome->measured.tree.series.growth_bytes, sites = 0;
    for (size_t i = 0; i < s->n_growing; i++)
        if (s->growing[i].verdict.leak == VERDICT_LEAK_YES)
            sites += s->growing[i].growth_bytes;
    return s->outcome->measured.marks.has_last_step || !(sites > 0) ? growth : fmin(growth, sites);
}

/* The suggestion for the whole peak, ASK_BYTES, includes a margin. Suggestions for parts of the
 * peak get the same relative margin. */
struct request summary_request(const struct summary *s)
{
    const struct outcome_measured *m = &s->outcome->measured;
    const struct outcome_series *t = &m->tree.series;
    const struct judged *worst = verdict_worst(s->verdicts);
    double ask = (double)m->ask_bytes, peak = (double)t->peak_bytes;
    struct request r = {.words = request_words_here()};
    if (!m->has_ask_bytes || !(peak > 0))
        return r;
    r.bytes = ask;
    r.steps = m->marks.has_last_step ? m->marks.last_step : 0;
    r.is_leak = worst && worst == &s->verdicts->job && worst->result.leak == VERDICT_LEAK_YES;
    if (!r.is_leak && s->earlier && s->earlier->runs > 1) {
        r.bytes = (double)s->earlier->bytes;
        r.runs = s->earlier->runs;
    }
    if (!r.is_leak)
        return r;
    const struct verdict_interval *rate = &worst->result.rate_bytes_per_step;
    if (s->planned_steps > r.steps && r.steps > 0 && rate->known && rate->value > 0) {
        r.planned_steps = s->planned_steps;
        r.planned_bytes = ask + ask / peak * rate->value * (double)(r.planned_steps - r.steps);
    }
    if (t->has_growth_bytes && t->growth_bytes > 0 && (double)t->growth_bytes < peak)
        r.fixed_bytes = ask * (peak - leaked_bytes(s)) / peak;
    return r;
}

/* ---- limits and GPUs ---- */

static void summary_put_ask(struct doc *d, const struct summary *s)
{
    char size[TEXT_SIZE_MAX];
    const struct outcome *o = s->outcome;
    const struct outcome_limit *l = &o->measured.limit;
    const struct request request = summary_request(s);
    bool is_own = o->guard.limit_is_given && o->guard.limit_bytes == l->limit_bytes;
    bool has_ask = request.bytes > 0;
    const char *where = l->where ? l->where : "";
    if (has_ask)
        request_put(d, &request);
    else
        doc_fact(d, "limit");
    if (l->has_limit_bytes) {
        /* for a limit set by the user, the option is shown instead of the location */
        doc_itemf(d, TONE_PLAIN, has_ask ? "limit %s (" : "%s (", text_size(size, l->limit_bytes));
        doc_name(d, TONE_PLAIN, is_own ? "--limit" : where, is_own ? 7 : strlen(where),
                 NAME_COLUMNS);
        doc_text(d, TONE_PLAIN, ")");
    }
    summary_item(d, TONE_PLAIN, "headroom ", l->has_headroom_bytes, l->headroom_bytes, "");
}

static void summary_put_gpus(struct doc *d, const struct outcome_measured *m)
{
    char label[32], used[TEXT_SIZE_MAX], total[TEXT_SIZE_MAX];
    for (size_t i = 0; i < m->gpu_count && i < GPUS_SHOWN; i++) {
        const struct outcome_gpu *g = &m->gpus[i];
        snprintf(label, sizeof label, "gpu %zu", i);
        doc_fact(d, label);
        if (g->name)
            doc_item(d), doc_name(d, TONE_PLAIN, g->name, strlen(g->name), NAME_COLUMNS);
        summary_item(d, TONE_PLAIN, "this job at most ", g->has_job_peak_bytes || g->has_job_bytes,
                     g->has_job_peak_bytes ? g->job_peak_bytes : g->job_bytes, "");
        if (g->has_used_bytes && g->has_total_bytes)
            doc_itemf(d, TONE_PLAIN, "%s of %s used at the end", text_size(used, g->used_bytes),
                      text_size(total, g->total_bytes));
        if (i + 1 == GPUS_SHOWN && m->gpu_count > GPUS_SHOWN)
            doc_itemf(d, TONE_PLAIN, "and %zu more GPUs", m->gpu_count - GPUS_SHOWN);
    }
}

/* ---- the full summary ---- */

static void summary_put_cost(struct doc *d, const struct outcome_cost *c)
{
    char time[TEXT_TIME_MAX];
    doc_fact(d, "ebb cost");
    if (!c->has_cpu_s)
        return;
    doc_itemf(d, TONE_PLAIN, "%s CPU", text_seconds(time, c->cpu_s));
    if (c->has_cpu_permyriad)
        doc_textf(d, TONE_PLAIN, " (%.2f %%)", (double)c->cpu_permyriad / 100);
    summary_item(d, TONE_PLAIN, "", c->has_rss_bytes, c->rss_bytes, "");
    if (c->longest_unique_call_ms > 0)
        doc_itemf(d, TONE_PLAIN, "longest page scan %s",
                  text_seconds(time, c->longest_unique_call_ms / 1000));
}

void summary_full(struct doc *d, const struct summary *s)
{
    const struct outcome *o = s->outcome;
    const struct outcome_measured *m = &o->measured;
    size_t given_advice = summary_lead(d, s, NULL);
    summary_gpu(d, s);
    if (s->verdicts)
        verdict_details(d, s->verdicts, true);
    doc_space(d);
    summary_put_run(d, o);
    heap_summary(d, s->growing, s->n_growing);
    if (m->tree.series.has_peak_bytes)
        summary_put_memory(d, &m->tree);
    summary_put_roles(d, m);
    summary_processes(d, m);
    summary_put_ask(d, s);
    summary_put_gpus(d, m);
    doc_fact(d, "gpu lines");
    if (s->gpu_trouble)
        doc_textf(d, TONE_PLAIN, "%s", s->gpu_trouble);
    summary_guard(d, o);
    summary_put_cost(d, &m->cost);
    if (s->diagnosis)
        diagnose_summary(d, s->diagnosis, given_advice);
}

/* ---- the short summary at the end of `ebb run` ---- */

/* Divides the run into SPARK_COLUMNS equal parts, and stores the maximum of S in each part. */
static bool spark_values(const struct series *s, uint64_t ret[SPARK_COLUMNS])
{
    struct series_point last = {0}, most = {0};
    if (!series_last(s, &last) || s->readings < SPARK_COLUMNS)
        return false;
    for (uint64_t i = 0; i < SPARK_COLUMNS;
         i++) { /* a part without samples gets the maximum of the previous part */
        series_max(s, last.t_ns / SPARK_COLUMNS * i, last.t_ns / SPARK_COLUMNS * (i + 1), &most);
        ret[i] = most.v;
    }
    return true;
}

static void brief_put_memory(struct doc *d, const struct summary *s, const struct judged *worst)
{
    const struct outcome_measured *m = &s->outcome->measured;
    const struct outcome_series *t = &m->tree.series;
    const struct judged *job = s->verdicts && s->verdicts->has_job ? &s->verdicts->job : NULL;
    char a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX], bars[SPARK_TEXT_MAX];
    uint64_t values[SPARK_COLUMNS];
    doc_fact(d, "memory");
    if (spark_values(s->spark, values))
        doc_textf(d, TONE_PLAIN, "%s ",
                  spark_text(bars, values, SPARK_COLUMNS, SPARK_COLUMNS, false));
    bool has_range = job && job->result.leak != VERDICT_LEAK_NO && t->floor_bytes.has_first &&
                     t->floor_bytes.has_last && t->has_rate_bytes_per_min;
    if (job && worst != job)
        doc_textf(d, TONE_PLAIN, "%s at %s", verdict_word_name(job->result.word),
                  text_about_size(a, job->result.floor_last_bytes));
    else if (has_range)
        doc_textf(d, TONE_PLAIN, "%s → %s", text_about_size(a, (double)t->floor_bytes.first),
                  text_about_size(b, (double)t->floor_bytes.last));
    if (t->has_peak_bytes) {
        /* the sparkline is not an item, so if no text follows it, the peak is added without a
         * comma */
        if (has_range || (job && worst != job))
            doc_item(d);
        doc_textf(d, TONE_PLAIN, "peak %s", text_about_size(a, (double)t->peak_bytes));
    }
    if (m->limit.has_limit_bytes)
        doc_itemf(d, TONE_PLAIN, "limit %s", text_size(a, m->limit.limit_bytes));
}

/* Adds the GPUs that the headline does not mention, such as "0 stable at 4.9 GiB". Returns true
 * if there are any. */
static bool brief_add_gpus(struct doc *d, const struct verdicts *v, const struct judged *worst,
                           const char *before)
{
    char size[TEXT_SIZE_MAX];
    size_t shown = 0, rest = 0;
    for (size_t i = 0; v && i < v->gpus.count; i++) {
        const struct judged *g = &v->gpus.at[i];
        if (g == worst || !g->result.samples)
            continue;
        rest += shown >= GPUS_SHOWN;
        if (shown++ >= GPUS_SHOWN)
            continue;
        doc_textf(d, TONE_PLAIN, "%s%u ", shown > 1 ? ", " : before, g->gpu);
        doc_text(d, verdict_tone(&g->result), verdict_word_name(g->result.word));
        if (g->result.has_floor)
            doc_textf(d, TONE_PLAIN, " at %s", text_about_size(size, g->result.floor_last_bytes));
    }
    if (rest)
        doc_textf(d, TONE_PLAIN, " and %zu more", rest);
    return shown;
}

void summary_add_operand(struct buf *out, const char *run_dir)
{
    char latest[PATH_MAX], own[PATH_MAX];
    if (realpath("ebb-runs/latest", latest) && realpath(run_dir, own) && strcmp(latest, own) == 0)
        return;
    buf_add_byte(out, ' ');
    text_command(out, summary_path(run_dir), strlen(summary_path(run_dir)));
}

void summary_add_show(struct buf *out, const char *run_dir, bool with_path)
{
    buf_add_str(out, "ebb show");
    size_t before = out->len;
    summary_add_operand(out, run_dir);
    if (out->len == before && with_path)
        buf_printf(out, " · %s", summary_path(run_dir));
}

static void brief_put_next(struct doc *d, const struct summary *s)
{
    const char *code = summary_code(s), *run_dir = s->outcome->about.run_dir;
    struct buf operand = {0};
    doc_fact(d, "next");
    if (run_dir) {
        summary_add_operand(&operand, run_dir);
        doc_textf(d, TONE_STRONG, "ebb report%s", buf_str(&operand));
        /* Next to a path there is no room for a second command. Only `ebb report` is shown, because
         * it includes the output of the other commands. */
        if (!operand.len)
            doc_textf(d, TONE_PLAIN, " · ebb %s",
                      !s->n_growing           ? "show"
                      : s->growing[0].has_gpu ? "heap --gpu"
                                              : "heap");
        buf_fini(&operand);
    }
    if (code)
        doc_textf(d, TONE_PLAIN, "%sebb explain %s", run_dir ? " · " : "", code);
}

static void brief_put_well(struct doc *d, const struct summary *s, const struct judged *worst)
{
    const char *run_dir = s->outcome->about.run_dir;
    struct buf text = {0};
    doc_headline(d, "");
    bool has_gpus = brief_add_gpus(d, s->verdicts, worst, "gpu ");
    if (has_gpus)
        doc_text(d, TONE_PLAIN, "; ");
    summary_add_end(&text, s->outcome);
    if (run_dir) {
        buf_add_str(&text, text.len ? " · " : "");
        /* after the GPUs, there is no room for the path */
        summary_add_show(&text, run_dir, !has_gpus);
    }
    doc_text(d, TONE_PLAIN, buf_str(&text));
    buf_fini(&text);
}

void summary_brief(struct doc *d, const struct summary *s)
{
    const struct outcome *o = s->outcome;
    const struct judged *worst = verdict_worst(s->verdicts);
    bool is_leak = worst && worst->result.leak == VERDICT_LEAK_YES;
    bool is_fine = worst && (worst->result.leak == VERDICT_LEAK_NO ||
                             (worst->result.word == VERDICT_UNDECIDED && !s->n_growing));
    summary_lead(d, s, "ebb");
    summary_gpu(d, s);
    if (is_fine && !summary_has_failed(o) && o->segment_count < 2 && !o->measured.recording.error) {
        brief_put_well(d, s, worst);
        summary_leftovers(d, o, true);
        return;
    }
    brief_put_memory(d, s, worst);
    doc_fact(d, "gpu");
    brief_add_gpus(d, s->verdicts, worst, "");
    doc_fact(d, "gpu lines");
    if (s->gpu_trouble)
        doc_textf(d, TONE_PLAIN, "%s", s->gpu_trouble);
    if (is_leak) {
        const struct request request = summary_request(s);
        request_put(d, &request);
    }
    summary_guard_brief(d, o);
    summary_leftovers(d, o, true);
    summary_put_run(d, o);
    brief_put_next(d, s);
}
