/* The end of a run as a document. */
#include "present/summary.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/text.h"
#include "present/cells.h"
#include "present/diagnose.h"
#include "present/document.h"
#include "present/heap.h"
#include "present/verdict.h"
#include "run/outcome.h"

enum { WIDTH_MIN = 40, WIDTH_MAX = 100, WIDTH_DEFAULT = 80 };
enum { PROCESSES_SHOWN = 8, COMMAND_COLUMNS = 18, GPUS_SHOWN = 2, NAME_COLUMNS = 40 };

/* "before 1.20 GiB after", where it is known. */
static void summary_item(struct doc *d, enum doc_tone tone, const char *before, bool has,
                         uint64_t bytes, const char *after)
{
    char size[TEXT_SIZE_MAX];
    if (has)
        doc_itemf(d, tone, "%s%s%s", before, text_size(size, bytes), after);
}

/* ---- how it ended ---- */

static enum doc_tone end_words(const struct outcome_end *end, bool is_machine, struct buf *out)
{
    bool has_sig = strncmp(end->signal, "SIG", 3) == 0;
    switch (end->kind) {
    case OUTCOME_EXITED:
        if (!end->has_status)
            break;
        buf_printf(out, "exited with status %lld", (long long)end->status);
        return end->status == 0 ? TONE_GOOD : TONE_BAD;
    case OUTCOME_SIGNALLED:
        buf_printf(out, "killed by %s%s", has_sig ? "" : "SIG",
                   end->has_signal ? end->signal : "NAL");
        return TONE_BAD;
    case OUTCOME_NOT_STARTED:
        buf_add_str(out, "could not be started");
        return TONE_BAD;
    case OUTCOME_GONE:
    case OUTCOME_WATCH_ENDED:
        buf_add_str(out, is_machine                  ? "the machine"
                         : end->kind == OUTCOME_GONE ? "the job ended"
                                                     : "the job runs on");
        return TONE_STRONG;
    default:
        break;
    }
    buf_add_str(out, "ended");
    return TONE_STRONG;
}

static void summary_put_end(struct doc *d, const struct outcome *o)
{
    char time[TEXT_TIME_MAX];
    const struct outcome_measured *m = &o->measured;
    const struct outcome_end *end = &o->end;
    bool is_watch = end->kind == OUTCOME_GONE || end->kind == OUTCOME_WATCH_ENDED;
    struct buf text = {0};
    enum doc_tone tone = end_words(end, is_watch && !m->has_tree, &text);
    if (m->has_duration_s)
        buf_printf(&text, is_watch ? ", watched for %s" : " after %s",
                   text_seconds(time, m->duration_s));
    doc_fact(d, "ebb");
    doc_itemf(d, tone, "%s", buf_str(&text));
    buf_fini(&text);
    if (end->by) {
        doc_itemf(d, TONE_PLAIN, "ended by ");
        doc_name(d, TONE_PLAIN, end->by, strlen(end->by), NAME_COLUMNS);
    }
    if (end->left_behind)
        doc_itemf(d, TONE_PLAIN, "%llu process%s left behind and ended",
                  (unsigned long long)end->left_behind, end->left_behind == 1 ? "" : "es");
    if (m->marks.has_last_step)
        doc_itemf(d, TONE_PLAIN, "last step %lld", (long long)m->marks.last_step);
    /* A status says most of it already: a cause that only repeats it is left out. */
    if (end->cause && end->cause_kind && strcmp(end->cause_kind, "finished") != 0 &&
        strcmp(end->cause_kind, "exit status") != 0) {
        doc_fact(d, "cause");
        doc_text(d, TONE_STRONG, end->cause);
    }
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
    doc_fact(d, "baseline"); /* too few readings for a rate are too few for a baseline */
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

/* "20 compile workers (up to 398 MiB each, 3.10 GiB unique)" */
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

/* The command without the folders of absolute paths, the name where there is none. A worker that
 * was forked has its parent's command line: a name of its own tells it apart, and comes first. The
 * kernel keeps 15 bytes of a name. */
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
        {.title = "FLOOR", .is_number = true, .priority = 8},
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

/* ---- limits and GPUs ---- */

static void summary_put_ask(struct doc *d, const struct outcome *o)
{
    char size[TEXT_SIZE_MAX];
    const struct outcome_limit *l = &o->measured.limit;
    bool is_own = o->guard.limit_is_given && o->guard.limit_bytes == l->limit_bytes;
    bool has_ask = o->measured.has_ask_bytes;
    const char *where = l->where ? l->where : "";
    doc_fact(d, has_ask ? "next time" : "limit");
    summary_item(d, TONE_STRONG, "ask for ", has_ask, o->measured.ask_bytes, "");
    if (l->has_limit_bytes) {
        /* the user's own has no place that says more than its name */
        doc_itemf(d, TONE_PLAIN, has_ask ? "the limit is %s (" : "%s (",
                  text_size(size, l->limit_bytes));
        doc_name(d, TONE_PLAIN, is_own ? "--limit" : where, is_own ? 7 : strlen(where),
                 NAME_COLUMNS);
        doc_text(d, TONE_PLAIN, ")");
    }
    summary_item(d, TONE_PLAIN, "head-room ", l->has_headroom_bytes, l->headroom_bytes, "");
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

/* ---- the recording ---- */

/* As one would type it from here. */
static const char *relative_path(const char *path)
{
    char cwd[PATH_MAX];
    size_t len = getcwd(cwd, sizeof cwd) ? strlen(cwd) : 0;
    if (len > 1 && strncmp(path, cwd, len) == 0 && path[len] == '/' && path[len + 1])
        return path + len + 1;
    return path;
}

static void summary_put_recording(struct doc *d, const struct outcome *o)
{
    char size[TEXT_SIZE_MAX];
    const struct outcome_recording *r = &o->measured.recording;
    if (!o->about.run_dir)
        return;
    doc_fact(d, "recording");
    doc_itemf(d, TONE_PLAIN, "%s", relative_path(o->about.run_dir));
    if (r->has_bytes)
        doc_textf(d, TONE_PLAIN, " (%s)", text_size(size, r->bytes));
    if (r->error)
        doc_itemf(d, TONE_BAD, "not complete: %s", r->error);
    if (r->blocks_lost)
        doc_itemf(d, TONE_PLAIN, "%llu blocks lost", (unsigned long long)r->blocks_lost);
}

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
        doc_itemf(d, TONE_PLAIN, "longest look at its pages %s",
                  text_seconds(time, c->longest_unique_call_ms / 1000));
}

void summary_doc(struct doc *d, const struct summary *s)
{
    const struct outcome *o = s->outcome;
    const struct outcome_measured *m = &o->measured;
    summary_put_end(d, o);
    if (s->verdicts)
        verdict_summary(d, s->verdicts);
    heap_summary(d, s->growing, s->n_growing);
    if (m->tree.series.has_peak_bytes)
        summary_put_memory(d, &m->tree);
    summary_put_roles(d, m);
    summary_processes(d, m);
    summary_put_ask(d, o);
    summary_put_gpus(d, m);
    summary_guard(d, o);
    summary_put_recording(d, o);
    summary_put_cost(d, &m->cost);
    if (s->diagnosis)
        diagnose_summary(d, s->diagnosis);
}

void summary_terminal(struct buf *out, const struct summary *s, bool colour, int width)
{
    struct doc d = {0};
    int columns = width <= 0 ? WIDTH_DEFAULT : width;
    columns = columns < WIDTH_MIN ? WIDTH_MIN : columns > WIDTH_MAX ? WIDTH_MAX : columns;
    summary_doc(&d, s);
    doc_terminal(out, &d, colour, (size_t)columns);
    doc_fini(&d);
}
