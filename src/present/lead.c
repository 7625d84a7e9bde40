/* Renders the lead, the beginning of every text about a run: the answer, the place, the advice.
 * Also renders failed GPU requests and fragmentation, which follow the lead. */
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>

#include "base/buf.h"
#include "base/io.h"
#include "base/text.h"
#include "diagnose/diagnosis.h"
#include "judge/verdicts.h"
#include "present/cells.h"
#include "present/document.h"
#include "present/summary.h"
#include "present/verdict.h"
#include "profile/view.h"
#include "run/outcome.h"

enum { CAUSE_COLUMNS = 160, SOURCE_MAX = 4 << 20, NAME_COLUMNS = 48 };

/* ---- the answer ---- */

bool summary_has_failed(const struct outcome *o)
{
    const struct outcome_end *end = &o->end;
    return end->kind == OUTCOME_SIGNALLED || end->kind == OUTCOME_NOT_STARTED ||
           end->kind == OUTCOME_LOST ||
           (end->kind == OUTCOME_EXITED && end->has_status && end->status != 0);
}

/* Returns the word for a cause, or "" if the sentence about the cause already contains the word. */
static const char *failure_word(const char *cause_kind)
{
    static const char *const words[][2] = {{"GPU memory", "out of GPU memory"},
                                           {"allocation failed", "out of memory"},
                                           {"cgroup out of memory", "out of memory"},
                                           {"host out of memory", "out of memory"},
                                           {"shared memory full", "out of shared memory"},
                                           {"exception", "failed"},
                                           {"exit status", "failed"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcmp(cause_kind, words[i][0]) == 0)
            return words[i][1];
    return "";
}

/* Adds, for example, "failed: ValueError: no such file after 12 s at step 40". */
static void lead_put_failure(struct doc *d, const struct outcome *o, const char *label)
{
    const struct outcome_end *end = &o->end;
    const char *kind = end->cause_kind               ? end->cause_kind
                       : end->kind == OUTCOME_EXITED ? "exit status"
                                                     : "";
    const char *word = failure_word(kind), *cause = end->cause ? end->cause : "";
    char time[TEXT_TIME_MAX];
    doc_headline(d, label);
    if (word[0])
        doc_textf(d, TONE_BAD, "%s", word), doc_text(d, TONE_PLAIN, ": ");
    if (end->kind == OUTCOME_NOT_STARTED)
        doc_text(d, TONE_BAD, "could not be started");
    else if (cause[0] && strcmp(kind, "exit status") != 0)
        doc_name(d, word[0] ? TONE_PLAIN : TONE_BAD, cause, strlen(cause), CAUSE_COLUMNS);
    else if (end->kind == OUTCOME_EXITED)
        doc_textf(d, TONE_PLAIN, "exited with status %lld", (long long)end->status);
    else
        doc_textf(d, TONE_BAD, "killed by %s%s", strncmp(end->signal, "SIG", 3) == 0 ? "" : "SIG",
                  end->has_signal ? end->signal : "NAL");
    if (o->measured.has_duration_s)
        doc_textf(d, TONE_PLAIN, ", after %s", text_about_time(time, o->measured.duration_s));
    if (o->measured.marks.has_last_step)
        doc_textf(d, TONE_PLAIN, " at step %lld", (long long)o->measured.marks.last_step);
}

/* Returns the first hypothesis, or NULL if it is not likely enough to be named. */
static const struct hypothesis *lead_hypothesis(const struct summary *s)
{
    const struct hypothesis *h =
        s->diagnosis && s->diagnosis->n_hypotheses ? s->diagnosis->hypotheses : NULL;
    bool is_held = h && (h->word == NEARLY_CERTAIN || h->word == LIKELY ||
                         (h->word == POSSIBLE && h->share > 0));
    return is_held ? h : NULL;
}

/* Returns true if the job failed because GPU memory ran out. The failed GPU request then explains
 * the failure, and growth on the host does not. */
static bool has_exhausted_gpu(const struct summary *s)
{
    const char *kind = s->outcome ? s->outcome->end.cause_kind : NULL;
    return s->gpu_failure && kind && strcmp(kind, "GPU memory") == 0;
}

/* Returns true if the lead explains the growth. A healthy job has nothing to explain. If there are
 * too few samples for a growth rate, all growth may belong to start-up. The lead then explains
 * growth only on a GPU, or if the job failed for a reason other than GPU memory. */
static bool has_explanation(const struct summary *s)
{
    const struct judged *worst = verdict_worst(s->verdicts);
    const struct hypothesis *h = lead_hypothesis(s);
    bool is_on_gpu = h && (h->id == HYPOTHESIS_GPU || h->id == HYPOTHESIS_GPU_FRAGMENTS);
    if (!worst || worst->result.leak == VERDICT_LEAK_NO)
        return false;
    return worst->result.word != VERDICT_UNDECIDED || worst->result.rate_bytes_per_step.known ||
           worst->result.rate_bytes_per_min.known || is_on_gpu ||
           (s->outcome && summary_has_failed(s->outcome) && !has_exhausted_gpu(s));
}

const char *summary_code(const struct summary *s)
{
    const struct hypothesis *h = has_explanation(s) ? lead_hypothesis(s) : NULL;
    return h ? hypothesis_code(h->id) : NULL;
}

static void lead_put_answer(struct doc *d, const struct summary *s, const char *label)
{
    const struct judged *worst = verdict_worst(s->verdicts);
    bool has_failed = s->outcome && summary_has_failed(s->outcome);
    if (has_failed) {
        lead_put_failure(d, s->outcome, label);
        label = label ? "" : NULL;
    }
    if (!worst && has_failed)
        return;
    doc_headline(d, label);
    if (worst)
        verdict_put_headline(d, worst, s->verdicts, !has_failed);
    else
        doc_text(d, TONE_OPEN, "undecided"), doc_text(d, TONE_PLAIN, ": there are no samples");
}

/* ---- the place ---- */

static const struct profile_frame *frame_of_row(const struct profile_row *row)
{
    return row->has_in_program ? &row->in_program : &row->where;
}

static bool is_same_place(const struct profile_frame *a, const struct profile_frame *b)
{
    return a->file && b->file && strcmp(a->file, b->file) == 0 && a->line == b->line;
}

/* Returns the path as one would type it in the folder where the job was started. */
static const char *lead_path(const char *file, const struct outcome *o)
{
    const char *below = path_below(file, o ? o->about.cwd : NULL);
    return below == file ? text_base_name(file) : below;
}

/* True if FILE is the absolute path of a source file. Only source files are read, because FILE
 * comes from the recording, which another user may have made. */
static bool is_source_name(const char *file)
{
    static const char *const endings[] = {".py", ".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hpp"};
    const char *dot = strrchr(file, '.');
    for (size_t i = 0; dot && i < sizeof endings / sizeof *endings; i++)
        if (strcmp(dot, endings[i]) == 0)
            return file[0] == '/';
    return false;
}

/* Reads the source line at P without its indentation. Returns false if the file does not exist.
 * Also returns false if the file was changed after the job started: its lines may have moved. */
static bool source_line(const struct profile_frame *p, const struct outcome *o, struct buf *ret)
{
    struct buf text = {0};
    struct stat st;
    if (!p->file || !p->has_line || p->line < 1 || !is_source_name(p->file))
        return false;
    bool is_old = lstat(p->file, &st) == 0 &&
                  (!o || !o->about.has_started_s || (double)st.st_mtime <= o->about.started_s);
    if (is_old && io_read_plain(AT_FDCWD, p->file, SOURCE_MAX, &text) == 0) {
        const char *at = buf_str(&text);
        for (uint32_t line = 1; at && line < p->line; line++) {
            at = strchr(at, '\n');
            at = at ? at + 1 : NULL;
        }
        while (at && (*at == ' ' || *at == '\t'))
            at++;
        if (at)
            buf_add(ret, at, strcspn(at, "\r\n"));
    }
    buf_fini(&text);
    return ret->len > 0;
}

/* Finds the call site that the diagnosis names. If it names none, finds the call site that grows
 * most. Returns false if neither exists. *RET_ROW is the row of the call site, or NULL. */
static bool find_place(const struct summary *s, struct profile_frame *ret,
                       const struct profile_row **ret_row)
{
    const struct hypothesis *h = lead_hypothesis(s);
    const struct growth_row *site = h ? h->site : NULL;
    *ret = s->n_growing ? *frame_of_row(s->growing) : (struct profile_frame){0};
    *ret_row = s->n_growing ? s->growing : NULL;
    if (site) {
        *ret = profile_frame_of(site->n_program ? site->program[0] : site->name);
        *ret_row = NULL;
    }
    for (size_t i = 0; site && !*ret_row && i < s->n_growing; i++)
        if (is_same_place(ret, frame_of_row(&s->growing[i])))
            *ret_row = &s->growing[i];
    return ret->file || ret->function;
}

/* Returns true if the rate of ROW is worth printing: it differs from the rate in the headline, and
 * the advice does not print it as the effect of the fix. */
static bool has_own_rate(const struct summary *s, const struct profile_row *row)
{
    const struct verdict_interval *own = &row->verdict.rate_bytes_per_step;
    const struct judged *worst = verdict_worst(s->verdicts);
    const struct verdict_interval *all = worst ? &worst->result.rate_bytes_per_step : NULL;
    const char *effect =
        s->diagnosis && s->diagnosis->n_advice ? s->diagnosis->advice[0].effect : "";
    if (!own->known || !(own->value > 0) || strstr(effect, "/step"))
        return false;
    return !all || !all->known || own->value < 0.8 * all->value;
}

/* Returns "so far". If ebb was attached to a running job, earlier allocations are unknown, so
 * returns text such as "since 12:00" instead. */
static const char *since_when(const struct outcome *o, char ret[16])
{
    const char *at =
        o && o->about.attached && o->about.started ? strchr(o->about.started, 'T') : NULL;
    if (!at || strlen(at) < sizeof "T12:00" - 1)
        return "so far";
    snprintf(ret, 16, "since %.5s", at + 1);
    return ret;
}

void summary_put_place(struct doc *d, const struct profile_frame *p, const struct outcome *o)
{
    bool is_whole = p->function && (p->function[0] == '<' || strchr(p->function, '('));
    if (p->file)
        doc_text(d, TONE_STRONG, lead_path(p->file, o));
    if (p->file && p->has_line)
        doc_textf(d, TONE_STRONG, ":%" PRIu32, p->line);
    if (p->function)
        doc_textf(d, TONE_PLAIN, "%s%s%s", p->file ? " in " : "", p->function,
                  is_whole ? "" : "()");
    if (!p->file && !p->function)
        doc_text(d, TONE_PLAIN, "an unknown line");
}

static void lead_put_place(struct doc *d, const struct summary *s)
{
    char size[TEXT_SIZE_MAX], since[16];
    const struct profile_row *row;
    struct profile_frame p;
    struct buf source = {0};
    if (!find_place(s, &p, &row))
        return;
    doc_point(d, POINT_PLACE);
    summary_put_place(d, &p, s->outcome);
    if (row && has_own_rate(s, row))
        doc_textf(d, TONE_PLAIN, ", +%s/step",
                  text_about_size(size, row->verdict.rate_bytes_per_step.value));
    if (row && row->growth_bytes > 0)
        doc_textf(d, TONE_PLAIN, ", %s %s", text_about_size(size, row->growth_bytes),
                  since_when(s->outcome, since));
    if (source_line(&p, s->outcome, &source)) {
        doc_point(d, POINT_SOURCE);
        doc_code(d, buf_str(&source));
    }
    buf_fini(&source);
}

/* ---- the cause and the advice ---- */

static void lead_put_note(struct doc *d, const struct summary *s)
{
    const struct hypothesis *h = lead_hypothesis(s);
    const struct kept_list *list = s->diagnosis->kept_by;
    if (!h)
        return;
    doc_point(d, POINT_NOTE);
    doc_textf(d, TONE_PLAIN, "%s", hypothesis_title(h->id));
    if (h->word != NEARLY_CERTAIN)
        doc_textf(d, TONE_PLAIN, " (%s)", hypothesis_words[h->word]);
    doc_textf(d, TONE_DIM, " [%s]", hypothesis_code(h->id));
    if (!list || !list->count || !hypothesis_is_live(h->id))
        return;
    const struct kept *kept = &list->at[0];
    /* The line above already names the function, so the end of the name, such as " (a variable of
     * main() in train.py:20)", is cut off. */
    const char *place = strstr(kept->name, " (a variable of ");
    doc_text(d, TONE_PLAIN, "; kept alive by ");
    doc_name(d, TONE_STRONG, kept->name, place ? (size_t)(place - kept->name) : strlen(kept->name),
             NAME_COLUMNS);
    if (kept->type[0])
        doc_textf(d, TONE_PLAIN, " (%s)", kept->type);
}

size_t summary_lead(struct doc *d, const struct summary *s, const char *label)
{
    lead_put_answer(d, s, label);
    if (!has_explanation(s))
        return 0;
    lead_put_place(d, s);
    if (!s->diagnosis)
        return 0;
    lead_put_note(d, s);
    if (!s->diagnosis->n_advice)
        return 0;
    doc_point(d, POINT_HELP);
    doc_text(d, TONE_PLAIN, s->diagnosis->advice[0].what);
    if (s->diagnosis->advice[0].effect[0])
        doc_textf(d, TONE_PLAIN, " (%s)", s->diagnosis->advice[0].effect);
    return 1;
}

static const char fragments_code[] = "gpu-fragmentation";
static const char fragments_help[] =
    "set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, or use fewer distinct tensor shapes";

/* ---- failed requests ---- */

static bool is_leaking_on(const struct verdicts *v, uint64_t gpu)
{
    for (size_t i = 0; v && i < v->gpus.count; i++)
        if (v->gpus.at[i].gpu == gpu && v->gpus.at[i].result.leak == VERDICT_LEAK_YES)
            return true;
    return false;
}

static bool is_in_pieces(const struct profile_failure *f)
{
    return f->reserved_bytes > f->allocated_bytes &&
           f->reserved_bytes - f->allocated_bytes >= f->request_bytes;
}

static void put_remedy(struct doc *d, const struct summary *s, const struct profile_failure *f)
{
    doc_point(d, POINT_HELP);
    if (is_in_pieces(f))
        doc_textf(d, TONE_PLAIN, "the free memory is fragmented: %s [%s]", fragments_help,
                  fragments_code);
    else if (is_leaking_on(s->verdicts, f->gpu))
        doc_text(d, TONE_PLAIN, "fix the leak on this GPU: memory use grew until the GPU was full");
    else
        doc_text(d, TONE_PLAIN,
                 "lower the batch size, or free memory at the largest call sites, which ebb heap "
                 "--gpu lists");
}

static void put_failure(struct doc *d, const struct summary *s)
{
    const struct profile_failure *f = s->gpu_failure;
    char size[TEXT_SIZE_MAX];
    doc_headline(d, "");
    doc_textf(d, TONE_BAD, "out of memory on gpu %" PRIu64, f->gpu);
    if (s->gpu_failures > 1)
        doc_textf(d, TONE_PLAIN, ", %" PRIu64 " times; first", s->gpu_failures);
    doc_textf(d, TONE_PLAIN, "%s a request of %s", s->gpu_failures > 1 ? "" : ":",
              text_about_size(size, (double)f->request_bytes));
    if (f->has_step)
        doc_textf(d, TONE_PLAIN, " at step %" PRId64, f->step);
    doc_textf(d, TONE_PLAIN, ", %s allocated", text_about_size(size, (double)f->allocated_bytes));
    doc_textf(d, TONE_PLAIN, " of %s reserved", text_about_size(size, (double)f->reserved_bytes));
    doc_point(d, POINT_PLACE);
    summary_put_place(d, &f->where, s->outcome);
    if (f->n_lines) {
        doc_point(d, POINT_NOTE);
        doc_textf(d, TONE_PLAIN, "the line with the most memory at that time, %s: ",
                  text_about_size(size, (double)f->lines[0].live_bytes));
        summary_put_place(d, &f->lines[0].where, s->outcome);
    }
    put_remedy(d, s, f);
}

/* ---- fragmentation ---- */

/* If the first hypothesis is fragmentation, returns its evidence, else NULL. The lead names
 * fragmentation unless the verdict excludes a leak. */
static const char *fragments_evidence(const struct summary *s)
{
    const struct hypothesis *h =
        s->diagnosis && s->diagnosis->n_hypotheses ? s->diagnosis->hypotheses : NULL;
    return h && h->id == HYPOTHESIS_GPU_FRAGMENTS ? hypothesis_evidence(h, EVIDENCE_FOR) : NULL;
}

void summary_gpu(struct doc *d, const struct summary *s)
{
    const char *evidence = fragments_evidence(s);
    const struct judged *worst = verdict_worst(s->verdicts);
    bool has_lead = worst && worst->result.leak != VERDICT_LEAK_NO;
    if (s->gpu_failure)
        put_failure(d, s);
    if (!evidence || has_lead || (s->gpu_failure && is_in_pieces(s->gpu_failure)))
        return;
    doc_headline(d, "");
    doc_text(d, TONE_OPEN, evidence);
    doc_textf(d, TONE_DIM, " [%s]", fragments_code);
    doc_point(d, POINT_HELP);
    doc_text(d, TONE_PLAIN, fragments_help);
}
