/* Defines the growth to explain and the list of hypotheses, and sorts the hypotheses. */
#include "diagnose/hypothesis.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "diagnose/hypothesis_private.h"

/* Growth below this fraction of the memory at the start, or below material_bytes, is noise. */
static const double material_share = 0.025;
static const double material_bytes = 4 << 20;
/* Growth that has ended is diagnosed only if it is at least this fraction of the memory at the
 * start, or of the headroom. */
static const double ended_share = 0.1;
/* A call site keeps memory alive if at least this fraction of its growth is still live. A call site
 * explains growth if at least this fraction of all growth comes from that call site. */
static const double kept_share = 0.5;
/* Memory from the first steps that is still live is diagnosed only if it exceeds both thresholds,
 * because every program allocates some memory in its first steps. */
static const double filled_share = 0.035;
static const double filled_bytes = 8 << 20;
/* Growth seems to have ended if at most this fraction of it occurred in the second half of the
 * compared time. */
static const double tail_share = 0.25;
/* If the baseline grew by less than this fraction of the growth, memory only looks higher because
 * it is at a peak. If the live heap's baseline grew by less than this fraction of resident memory's
 * growth, the growth was freed. */
static const double going_share = 0.3;
/* Log-odds of a hypothesis before any evidence: a probability of about one in four. */
static const double prior = -1;

/* Whether the growth that a hypothesis explains ends by itself. If the verdict is a leak,
 * hypotheses whose growth ends are ruled out. If the verdict excludes a leak, hypotheses whose
 * growth continues are ruled out. */
enum course { EITHER, ENDS, GOES_ON };

/* WORTH is the specificity of the cause. Of two hypotheses that explain the same growth, the more
 * specific one comes first: "Python objects" fits most leaks but helps to fix few of them, and the
 * line that keeps shared memory alive is more useful than "shared memory". */
static const struct {
    hypothesis_test *test;
    double worth;
    enum course course;
} tests[] = {
    [HYPOTHESIS_LAUNCHER] = {test_launcher, 1, EITHER},
    [HYPOTHESIS_WORKERS] = {test_workers, 0.9, ENDS},
    [HYPOTHESIS_DATA_LOAD] = {test_data_load, 0.7, ENDS},
    [HYPOTHESIS_FIRST_TOUCH] = {test_first_touch, 1, ENDS},
    [HYPOTHESIS_ACCUMULATION] = {test_accumulation, 0.8, ENDS},
    [HYPOTHESIS_EVAL_SPIKE] = {test_eval_spike, 1, ENDS},
    [HYPOTHESIS_EVAL_STEP] = {test_eval_step, 1, GOES_ON},
    [HYPOTHESIS_PYTHON_OBJECTS] = {test_python_objects, 0.6, EITHER},
    [HYPOTHESIS_TENSORS] = {test_tensors, 0.7, EITHER},
    [HYPOTHESIS_AUTOGRAD] = {test_autograd, 1, GOES_ON},
    [HYPOTHESIS_CALL_SITE] = {test_call_site, 0.85, EITHER},
    [HYPOTHESIS_RETENTION] = {test_retention, 0.9, ENDS},
    [HYPOTHESIS_MAPPED_FILES] = {test_mapped_files, 0.9, ENDS},
    [HYPOTHESIS_SHARED_MEMORY] = {test_shared_memory, 0.75, EITHER},
    [HYPOTHESIS_PINNED] = {test_pinned, 0.9, EITHER},
    [HYPOTHESIS_COPY_ON_WRITE] = {test_copy_on_write, 1, EITHER},
    [HYPOTHESIS_PROCESSES] = {test_processes, 1, GOES_ON},
    [HYPOTHESIS_COMPILE] = {test_compile, 1, EITHER},
    [HYPOTHESIS_GPU] = {test_gpu, 0.9, EITHER},
    [HYPOTHESIS_GPU_FRAGMENTS] = {test_gpu_fragments, 0.9, EITHER},
    [HYPOTHESIS_SWAP] = {test_swap, 0.8, EITHER},
    [HYPOTHESIS_THP] = {test_thp, 0.7, ENDS},
    [HYPOTHESIS_NO_GROWTH] = {test_no_growth, 0.6, ENDS},
};

#define X(sym, key, code, title) [HYPOTHESIS_##sym] = {key, code, title},
static const struct {
    const char *key, *code, *title;
} names[] = {HYPOTHESES(X)};
#undef X

const char *hypothesis_key(enum hypothesis_id id)
{
    return names[id].key;
}

const char *hypothesis_code(enum hypothesis_id id)
{
    return names[id].code;
}

const char *hypothesis_title(enum hypothesis_id id)
{
    return names[id].title;
}

bool hypothesis_is_live(enum hypothesis_id id)
{
    return id == HYPOTHESIS_CALL_SITE || id == HYPOTHESIS_AUTOGRAD || id == HYPOTHESIS_TENSORS ||
           id == HYPOTHESIS_PYTHON_OBJECTS || id == HYPOTHESIS_EVAL_STEP ||
           id == HYPOTHESIS_FIRST_TOUCH || id == HYPOTHESIS_SHARED_MEMORY;
}

const char *const hypothesis_words[] = {[RULED_OUT] = "ruled out",
                                        [UNLIKELY] = "unlikely",
                                        [POSSIBLE] = "possible",
                                        [LIKELY] = "likely",
                                        [NEARLY_CERTAIN] = "nearly certain",
                                        [CANNOT_TEST] = "cannot be tested",
                                        NULL};

/* ---- the question ---- */

double main_at(const struct question *q, enum sample_process_field field, double t_s)
{
    return q->f->main ? facts_field_at(q->f->main, field, t_s) : (double)NAN;
}

double main_growth(const struct question *q, enum sample_process_field field)
{
    return main_at(q, field, q->f->now_s) - main_at(q, field, q->f->start_s);
}

double leakable_at(const struct question *q, double t_s)
{
    double file = main_at(q, SAMPLE_FILE, t_s), swap = main_at(q, SAMPLE_SWAP, t_s);
    return main_at(q, SAMPLE_RSS, t_s) - (isnan(file) ? 0 : file) + (isnan(swap) ? 0 : swap);
}

double figure_growth(const struct question *q, const char *name)
{
    const struct facts_figure *figure = facts_figure(q->f, name);
    return figure ? facts_growth(&figure->series, q->f->start_s, q->f->now_s) : (double)NAN;
}

double heap_growth(const struct question *q)
{
    bool is_counted = q->f->heap.profile || facts_figure(q->f, "heap_live_bytes");
    return is_counted && q->l->is_known ? ledger_live_growth(q->l) : (double)NAN;
}

/* Returns true if row I grew and keeps its growth alive: the verdict on the row does not exclude a
 * leak, or the process does not leak and most of the growth of the row is still live. */
static bool row_keeps_growth(const struct question *q, size_t i, double grown)
{
    const struct facts_heap *heap = &q->f->heap;
    const struct growth_row *row = &heap->growth.rows[i];
    bool is_growing = row->verdict.leak != VERDICT_LEAK_NO;
    double kept = heap->sites[i].floor_bytes - heap->sites[i].start_bytes;
    bool is_kept = kept > kept_share * (row->live_bytes - heap->sites[i].start_bytes);
    return grown >= material_bytes && (is_growing || (is_kept && !is_leak(q->word)));
}

const struct growth_row *keeping_site(const struct question *q, double *ret_grown)
{
    const struct growth_row *best = NULL;
    for (size_t i = 0; i < q->f->heap.growth.count; i++) {
        double grown = ledger_row_growth(q->f, q->l, i);
        if (!row_keeps_growth(q, i, grown) || (best && grown <= *ret_grown))
            continue;
        best = &q->f->heap.growth.rows[i];
        *ret_grown = grown;
    }
    return best;
}

static const struct name *function_of(const struct growth_row *row)
{
    return row->n_program ? row->program[0] : row->name;
}

static bool is_same(const char *a, const char *b)
{
    return a && b && strcmp(a, b) == 0;
}

double keeping_sites_beside(const struct question *q, const struct growth_row *row,
                            size_t *ret_lines)
{
    const struct name *own = function_of(row);
    double sum = 0;
    *ret_lines = 0;
    for (size_t i = 0; i < q->f->heap.growth.count; i++) {
        const struct growth_row *other = &q->f->heap.growth.rows[i];
        const struct name *n = function_of(other);
        double grown = ledger_row_growth(q->f, q->l, i);
        if (other == row || !row_keeps_growth(q, i, grown) ||
            !is_same(own->function, n->function) || !is_same(own->file, n->file))
            continue;
        sum += grown;
        ++*ret_lines;
    }
    return sum;
}

static double floor_growth(const struct facts *f, const struct facts_series *s)
{
    double middle_s = (f->start_s + f->now_s) / 2;
    return facts_min(s, middle_s, f->now_s) - facts_min(s, f->start_s, middle_s);
}

static double held_least(const struct facts_series *live, const struct facts_series *spare,
                         double from_s, double to_s)
{
    double least = (double)NAN;
    for (size_t i = 0; i < live->count; i++)
        if (live->t_s[i] >= from_s && live->t_s[i] <= to_s)
            least = fmin(least, live->v[i] + facts_near(spare, live->t_s[i]));
    return least;
}

static double held_growth(const struct facts *f, const struct facts_series *live,
                          const struct facts_series *spare)
{
    double middle_s = (f->start_s + f->now_s) / 2;
    return held_least(live, spare, middle_s, f->now_s) -
           held_least(live, spare, f->start_s, middle_s);
}

struct floors baselines_of(const struct question *q)
{
    const struct facts *f = q->f;
    const struct facts_figure *live = facts_figure(f, "heap_live_bytes");
    const struct facts_figure *spare = facts_figure(f, "heap_free_bytes");
    struct floors r = {(double)NAN, (double)NAN, (double)NAN, false};
    if (!live || !f->main)
        return r;
    r.live = floor_growth(f, &live->series);
    r.held = spare ? held_growth(f, &live->series, &spare->series) : (double)NAN;
    /* anonymous memory contains all memory of malloc and no file pages */
    r.memory = floor_growth(f, &f->main->field[SAMPLE_ANON]);
    if (isnan(r.memory))
        r.memory = floor_growth(f, &f->main->field[SAMPLE_RSS]);
    double kept = 0;
    keeping_site(q, &kept);
    r.is_freed = r.memory > fmax(material_bytes, material_share * q->base) &&
                 r.live < going_share * r.memory && kept < going_share * q->total;
    return r;
}

/* Returns the growth of the memory charged to the job's cgroup. Without a cgroup, returns the
 * growth of its processes with shared pages counted once. */
static double tree_growth(const struct facts *f)
{
    double charge = facts_growth(&f->charge, f->start_s, f->now_s);
    return isnan(charge) ? facts_growth(&f->tree, f->start_s, f->now_s) : charge;
}

bool is_leak(enum verdict_word word)
{
    return verdict_word_leak(word) == VERDICT_LEAK_YES;
}

bool is_worth_diagnosing(const struct question *q, double bytes)
{
    double least = fmax(material_bytes, ended_share * q->base);
    return bytes > least || (q->room > 0 && bytes > fmax(material_bytes, ended_share * q->room));
}

bool is_mostly_early(double growth, double late)
{
    return late < tail_share * growth;
}

/* Returns true if growth has ended according to the verdict or, if the verdict is undecided,
 * according to the second half of the compared time. */
static bool has_growth_ended(const struct question *q)
{
    double middle = leakable_at(q, (q->f->start_s + q->f->now_s) / 2);
    if (q->word != VERDICT_UNDECIDED)
        return facts_has_ended(q->word);
    return is_mostly_early(q->growth, q->base + q->growth - middle);
}

/* Returns true if one call site accounts for most of the growth, and its growth is large enough to
 * diagnose. */
static bool is_held_by_one_site(const struct question *q)
{
    double kept = 0;
    keeping_site(q, &kept);
    return q->word != VERDICT_SPIKING && kept > kept_share * q->total &&
           kept > fmax(filled_bytes, filled_share * q->base);
}

static double least_between(const struct question *q, double from_s, double to_s)
{
    enum { LOOKS = 40 };
    double least = (double)NAN;
    for (int i = 0; i <= LOOKS; i++)
        least = fmin(least, leakable_at(q, from_s + (to_s - from_s) * i / LOOKS));
    return least;
}

double early_baseline(const struct question *q)
{
    return least_between(q, q->f->start_s, (q->f->start_s + q->f->now_s) / 2);
}

double late_baseline(const struct question *q)
{
    return least_between(q, (q->f->start_s + q->f->now_s) / 2, q->f->now_s);
}

/* Returns true if the baseline has not grown: memory is higher at the second moment only because of
 * a peak in progress. */
static bool is_peak_in_progress(const struct question *q)
{
    return late_baseline(q) - early_baseline(q) < going_share * q->growth;
}

void question_make(const struct facts *f, const struct ledger *l, struct question *ret)
{
    struct question q = {.f = f, .l = l, .word = VERDICT_UNDECIDED};
    if (f->main && f->main->verdict.is_known)
        q.word = f->main->verdict.word;
    q.base = leakable_at(&q, f->start_s);
    q.growth = leakable_at(&q, f->now_s) - q.base;
    q.tree_growth = tree_growth(f);
    q.total = fmax(0, fmax(q.growth, q.tree_growth));
    bool leaks = f->job.is_known && f->job.leak == VERDICT_LEAK_YES;
    /* A leak may exceed the difference between the two moments. It may reuse memory that was
     * already resident; the growth of the live heap includes this. Memory may also happen to be low
     * at the second moment; the verdict's growth rate does not depend on this. */
    if (leaks)
        q.total =
            fmax(q.total, fmax(heap_growth(&q), f->job.per_min / 60 * (f->now_s - f->start_s)));
    q.room = f->limit_bytes - q.base;
    bool is_material = q.total > fmax(material_bytes, material_share * q.base);
    enum verdict_word tree = f->job.is_known ? f->job.word : q.word;
    bool is_flat = q.word != VERDICT_PLATEAUED && tree != VERDICT_PLATEAUED;
    bool is_all = tree == q.word && q.growth > kept_share * q.total;
    bool is_over = has_growth_ended(&q) && (is_all || facts_has_ended(tree));
    bool is_much = is_worth_diagnosing(&q, is_flat ? q.growth : q.total) &&
                   q.word != VERDICT_SPIKING &&
                   !(q.growth > kept_share * q.total && is_peak_in_progress(&q));
    q.has_grown =
        (leaks && q.total > 0) || (is_material && (!is_over || is_held_by_one_site(&q) || is_much));
    q.is_growing = q.has_grown && !has_growth_ended(&q);
    *ret = q;
}

double share_of(const struct question *q, double bytes)
{
    double whole = q->has_grown ? q->total : q->base + q->growth;
    return whole > 0 && bytes > 0 ? fmin(1, bytes / whole) : 0;
}

/* ---- evidence ---- */

void evidence_add(struct hypothesis *h, enum evidence_side side, double weight, const char *fmt,
                  ...)
{
    va_list ap;
    if (h->n_evidence == EVIDENCE_MAX)
        return;
    struct evidence *e = &h->evidence[h->n_evidence++];
    *e = (struct evidence){.side = side, .weight = side == EVIDENCE_ABSENT ? 0 : weight};
    va_start(ap, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, ap);
    va_end(ap);
}

void decide_by(struct hypothesis *h, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(h->decide, sizeof h->decide, fmt, ap);
    va_end(ap);
}

static void frame_text(char *out, size_t size, const struct name *n)
{
    const char *slash = n->file ? strrchr(n->file, '/') : NULL;
    const char *file = slash ? slash + 1 : n->file;
    if (file && n->line)
        snprintf(out, size, "%.35s:%u (%.45s)", file, n->line, n->function);
    else
        snprintf(out, size, "%.80s", n->function);
}

const char *place_text(char out[PLACE_MAX], const struct growth_row *row)
{
    char where[100], own[100];
    frame_text(where, sizeof where, row->name);
    if (row->n_program)
        frame_text(own, sizeof own, row->program[0]);
    if (row->n_program && row->n_places > 1)
        snprintf(out, PLACE_MAX, "%s through %zu lines", own, row->n_places);
    else if (row->n_program && !row->name->is_own)
        snprintf(out, PLACE_MAX, "%s through %s", own, where);
    else
        snprintf(out, PLACE_MAX, "%s", where);
    return out;
}

bool has_grown_a_little(const struct question *q)
{
    return !q->has_grown && q->total > fmax(material_bytes, material_share * q->base);
}

void evidence_add_no_growth(const struct question *q, struct hypothesis *h, double weight)
{
    if (has_grown_a_little(q))
        evidence_absent(h, "memory grew by only %s and then stopped: too little to diagnose",
                        SIZE(q->total));
    else
        evidence_against(h, weight, "memory did not grow");
}

void evidence_add_baselines(struct hypothesis *h, enum evidence_side side, double weight,
                            const struct floors *floors)
{
    evidence_add(h, side, weight,
                 "allocations are freed: from the first to the second half of the run, the "
                 "baseline of the live heap changed by %s, but that of resident memory by %s",
                 CHANGE(floors->live), CHANGE(floors->memory));
}

const char *hypothesis_evidence(const struct hypothesis *h, enum evidence_side side)
{
    for (size_t i = 0; i < h->n_evidence; i++)
        if (h->evidence[i].side == side)
            return h->evidence[i].text;
    return NULL;
}

/* ---- weighing ---- */

static void weigh(struct hypothesis *h)
{
    bool is_tested = false;
    h->log_odds = prior;
    for (size_t i = 0; i < h->n_evidence; i++) {
        const struct evidence *e = &h->evidence[i];
        is_tested = is_tested || e->side != EVIDENCE_ABSENT;
        h->log_odds += e->side == EVIDENCE_FOR       ? e->weight
                       : e->side == EVIDENCE_AGAINST ? -e->weight
                                                     : 0;
    }
    h->word = !is_tested            ? CANNOT_TEST
              : h->log_odds >= 3    ? NEARLY_CERTAIN
              : h->log_odds >= 1    ? LIKELY
              : h->log_odds >= -1.5 ? POSSIBLE
              : h->log_odds >= -4   ? UNLIKELY
                                    : RULED_OUT;
    if (h->word == NEARLY_CERTAIN || h->word == RULED_OUT)
        h->decide[0] = '\0';
}

/* Returns the sort key. A hypothesis that cannot be tested may be true, so it comes before
 * hypotheses that are ruled out. */
static double score(const struct hypothesis *h)
{
    double odds = 1 / (1 + exp(-h->log_odds));
    if (h->word == CANNOT_TEST)
        return h->is_opposed ? 1e-4 : 1e-3;
    return h->word == RULED_OUT ? 0 : odds * (h->share + 1e-2) * tests[h->id].worth;
}

static int by_score(const void *a, const void *b)
{
    const struct hypothesis *x = a, *y = b;
    double left = score(x), right = score(y);
    if (left != right)
        return left < right ? 1 : -1;
    return (int)x->id - (int)y->id;
}

/* Adjusts H to the verdict, because a diagnosis explains the verdict and never contradicts it. */
static void follow_verdict(const struct question *q, struct hypothesis *h)
{
    enum verdict_word word = q->f->job.word;
    enum verdict_leak leak = q->f->job.is_known ? q->f->job.leak : VERDICT_LEAK_UNKNOWN;
    enum course course = tests[h->id].course;
    h->is_opposed = (leak == VERDICT_LEAK_YES && course == ENDS) ||
                    (leak == VERDICT_LEAK_NO && course == GOES_ON);
    if (!h->is_opposed || !hypothesis_evidence(h, EVIDENCE_FOR))
        return;
    if (leak == VERDICT_LEAK_YES)
        evidence_against(h, DECIDES, "the verdict is %s: memory keeps growing",
                         verdict_word_name(word));
    else
        evidence_against(h, DECIDES, "the verdict is %s: memory does not keep growing",
                         verdict_word_name(word));
}

void hypotheses_test(const struct question *q, struct hypothesis ret[HYPOTHESIS_COUNT])
{
    for (int i = 0; i < HYPOTHESIS_COUNT; i++) {
        ret[i] = (struct hypothesis){.id = (enum hypothesis_id)i};
        tests[i].test(q, &ret[i]);
        follow_verdict(q, &ret[i]);
        weigh(&ret[i]);
    }
    qsort(ret, HYPOTHESIS_COUNT, sizeof *ret, by_score);
}
