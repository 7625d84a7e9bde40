/* The question, the list of hypotheses, and their rank. */
#include "diagnose/hypothesis.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "diagnose/hypothesis_private.h"

/* Growth below this part of what there was, or below so many bytes, is noise. */
static const double material_share = 0.025;
static const double material_bytes = 4 << 20;
/* Growth that has ended harms by its size alone: this part of what there was, or of the room. */
static const double ended_share = 0.1;
/* Of what a call site came to hold, and half of a growth: so much it must have kept. */
static const double kept_share = 0.5;
/* What a line came to hold with the first steps and holds ever since is asked about from here on:
 * less is what any program comes to. */
static const double filled_share = 0.035;
static const double filled_bytes = 8 << 20;
/* Growth of which no more than this came in the second half of the time seems to have ended. */
static const double tail_share = 0.25;
/* A floor that rises by less than this part of what another does stays. */
static const double going_share = 0.3;
/* Before anything is measured each is about as likely as one in four. */
static const double prior = -1;

/* X(symbol, how much of the cause it tells): of two that explain the same growth the one that tells
 * more comes first. "Python objects" is true of most leaks and helps with few. */
static const struct {
    hypothesis_test *test;
    double worth;
} tests[] = {
    [HYPOTHESIS_LAUNCHER] = {test_launcher, 1},
    [HYPOTHESIS_WORKERS] = {test_workers, 0.9},
    [HYPOTHESIS_DATA_LOAD] = {test_data_load, 0.7},
    [HYPOTHESIS_FIRST_TOUCH] = {test_first_touch, 1},
    [HYPOTHESIS_ACCUMULATION] = {test_accumulation, 0.8},
    [HYPOTHESIS_EVAL_SPIKE] = {test_eval_spike, 1},
    [HYPOTHESIS_EVAL_STEP] = {test_eval_step, 1},
    [HYPOTHESIS_PYTHON_OBJECTS] = {test_python_objects, 0.6},
    [HYPOTHESIS_TENSORS] = {test_tensors, 0.7},
    [HYPOTHESIS_AUTOGRAD] = {test_autograd, 1},
    [HYPOTHESIS_CALL_SITE] = {test_call_site, 0.85},
    [HYPOTHESIS_RETENTION] = {test_retention, 0.9},
    [HYPOTHESIS_MAPPED_FILES] = {test_mapped_files, 0.9},
    [HYPOTHESIS_SHARED_MEMORY] = {test_shared_memory, 0.9},
    [HYPOTHESIS_PINNED] = {test_pinned, 0.9},
    [HYPOTHESIS_COPY_ON_WRITE] = {test_copy_on_write, 1},
    [HYPOTHESIS_COMPILE] = {test_compile, 1},
    [HYPOTHESIS_GPU] = {test_gpu, 0.9},
    [HYPOTHESIS_SWAP] = {test_swap, 0.8},
    [HYPOTHESIS_THP] = {test_thp, 0.7},
    [HYPOTHESIS_NO_GROWTH] = {test_no_growth, 0.6},
};

const char *hypothesis_key(enum hypothesis_id id)
{
#define X(sym, key, title) [HYPOTHESIS_##sym] = (key),
    static const char *const keys[] = {HYPOTHESES(X)};
#undef X
    return keys[id];
}

const char *hypothesis_title(enum hypothesis_id id)
{
#define X(sym, key, title) [HYPOTHESIS_##sym] = (title),
    static const char *const titles[] = {HYPOTHESES(X)};
#undef X
    return titles[id];
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

/* Does row I hold what it has come to hold, and not only at this moment? Where memory surely goes
 * on growing it must do so, too. */
static bool keeps(const struct question *q, size_t i, double grown)
{
    const struct facts_heap *heap = &q->f->heap;
    const struct growth_row *row = &heap->growth.rows[i];
    bool is_growing = row->verdict.leak != VERDICT_LEAK_NO;
    bool leaks = q->word == VERDICT_LEAKING || q->word == VERDICT_STEPPING;
    double kept = heap->floor_bytes[i] - heap->start_bytes[i];
    bool is_kept = kept > kept_share * (row->live_bytes - heap->start_bytes[i]);
    return grown >= material_bytes && (is_growing || (is_kept && !leaks));
}

const struct growth_row *keeper(const struct question *q, double *ret_grown)
{
    const struct growth_row *best = NULL;
    for (size_t i = 0; i < q->f->heap.growth.count; i++) {
        double grown = ledger_row_growth(q->f, q->l, i);
        if (!keeps(q, i, grown) || (best && grown <= *ret_grown))
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

double keeper_beside(const struct question *q, const struct growth_row *row, size_t *ret_lines)
{
    const struct name *own = function_of(row);
    double sum = 0;
    *ret_lines = 0;
    for (size_t i = 0; i < q->f->heap.growth.count; i++) {
        const struct growth_row *other = &q->f->heap.growth.rows[i];
        const struct name *n = function_of(other);
        double grown = ledger_row_growth(q->f, q->l, i);
        if (other == row || !keeps(q, i, grown) || !is_same(own->function, n->function) ||
            !is_same(own->file, n->file))
            continue;
        sum += grown;
        ++*ret_lines;
    }
    return sum;
}

static double floor_growth(const struct facts *f, const struct facts_series *s)
{
    double middle_s = (f->start_s + f->now_s) / 2;
    return facts_least(s, middle_s, f->now_s) - facts_least(s, f->start_s, middle_s);
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

struct floors floors_of(const struct question *q)
{
    const struct facts *f = q->f;
    const struct facts_figure *live = facts_figure(f, "heap_live_bytes");
    const struct facts_figure *spare = facts_figure(f, "heap_free_bytes");
    struct floors r = {(double)NAN, (double)NAN, (double)NAN, false};
    if (!live || !f->main)
        return r;
    r.live = floor_growth(f, &live->series);
    r.held = spare ? held_growth(f, &live->series, &spare->series) : (double)NAN;
    r.memory = floor_growth(f, &f->main->field[SAMPLE_ANON]); /* what malloc has is in that */
    if (isnan(r.memory))
        r.memory = floor_growth(f, &f->main->field[SAMPLE_RSS]);
    double kept = 0;
    keeper(q, &kept);
    r.lets_go = r.memory > fmax(material_bytes, material_share * q->base) &&
                r.live < going_share * r.memory && kept < going_share * q->total;
    return r;
}

/* Charged to its cgroup, or counted once over its processes. */
static double tree_growth(const struct facts *f)
{
    double charge = facts_growth(&f->charge, f->start_s, f->now_s);
    return isnan(charge) ? facts_growth(&f->tree, f->start_s, f->now_s) : charge;
}

bool is_leak(enum verdict_word word)
{
    return word == VERDICT_LEAKING || word == VERDICT_STEPPING;
}

bool is_worth_asking(const struct question *q, double bytes)
{
    double least = fmax(material_bytes, ended_share * q->base);
    return bytes > least || (q->room > 0 && bytes > fmax(material_bytes, ended_share * q->room));
}

/* Has growth ended, by the verdict, or where that is undecided by what there was to see? */
static bool is_past(const struct question *q)
{
    double middle = leakable_at(q, (q->f->start_s + q->f->now_s) / 2);
    if (q->word != VERDICT_UNDECIDED)
        return facts_has_ended(q->word);
    return q->base + q->growth - middle < tail_share * q->growth;
}

/* Does a line hold most of the growth, and so much that one would ask? */
static bool has_filled(const struct question *q)
{
    double kept = 0;
    keeper(q, &kept);
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

/* Is what there is more at the second moment only on its way down again? Its floor has not risen
 * then. */
static bool is_tooth(const struct question *q)
{
    double start_s = q->f->start_s, now_s = q->f->now_s, middle_s = (start_s + now_s) / 2;
    double risen = least_between(q, middle_s, now_s) - least_between(q, start_s, middle_s);
    return risen < going_share * q->growth;
}

void question_ask(const struct facts *f, const struct ledger *l, struct question *ret)
{
    struct question q = {.f = f, .l = l, .word = VERDICT_UNDECIDED};
    if (f->main && f->main->verdict.is_known)
        q.word = f->main->verdict.word;
    q.base = leakable_at(&q, f->start_s);
    q.growth = leakable_at(&q, f->now_s) - q.base;
    q.tree_growth = tree_growth(f);
    q.total = fmax(0, fmax(q.growth, q.tree_growth));
    q.room = f->limit_bytes - q.base;
    bool is_material = q.total > fmax(material_bytes, material_share * q.base);
    enum verdict_word tree = f->job.is_known ? f->job.word : q.word;
    bool is_flat = q.word != VERDICT_PLATEAUED && tree != VERDICT_PLATEAUED;
    bool is_all = tree == q.word && q.growth > kept_share * q.total;
    bool is_over = is_past(&q) && (is_all || facts_has_ended(tree));
    bool is_much = is_worth_asking(&q, is_flat ? q.growth : q.total) && q.word != VERDICT_SPIKING &&
                   !(q.growth > kept_share * q.total && is_tooth(&q));
    q.has_grown = is_material && (!is_over || has_filled(&q) || is_much);
    q.is_growing = q.has_grown && !is_past(&q);
    *ret = q;
}

double share_of(const struct question *q, double bytes)
{
    double whole = q->has_grown ? q->total : q->base + q->growth;
    return whole > 0 && bytes > 0 ? fmin(1, bytes / whole) : 0;
}

/* ---- evidence ---- */

void say(struct hypothesis *h, enum evidence_side side, double weight, const char *fmt, ...)
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

static uint64_t whole_bytes(double bytes)
{
    return bytes > 0 && bytes < 9e18 ? (uint64_t)llround(bytes) : 0;
}

const char *size_of(struct sizes *s, size_t place, double bytes)
{
    return text_size(s->text[place], whole_bytes(bytes));
}

const char *change_of(struct sizes *s, size_t place, double bytes)
{
    int64_t whole = bytes < 0 ? -(int64_t)whole_bytes(-bytes) : (int64_t)whole_bytes(bytes);
    return text_size_signed(s->text[place], whole);
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

void say_flat(const struct question *q, struct hypothesis *h, double weight)
{
    struct sizes s;
    if (has_grown_a_little(q))
        say(h, EVIDENCE_ABSENT, 0, "memory grew by %s and has stopped: too little to tell why",
            size_of(&s, 0, q->total));
    else
        say(h, EVIDENCE_AGAINST, weight, "memory did not grow");
}

void say_floors(struct hypothesis *h, enum evidence_side side, double weight,
                const struct floors *floors)
{
    struct sizes s;
    say(h, side, weight,
        "what is made is let go: the floor of the live heap changed by %s from the first half of "
        "the time to the second, that of memory by %s",
        change_of(&s, 0, floors->live), change_of(&s, 1, floors->memory));
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

/* One that cannot be tested may be it: before those that speak against themselves. */
static double score(const struct hypothesis *h)
{
    double odds = 1 / (1 + exp(-h->log_odds));
    if (h->word == CANNOT_TEST)
        return 1e-3;
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

void hypotheses_test(const struct question *q, struct hypothesis ret[HYPOTHESIS_COUNT])
{
    for (int i = 0; i < HYPOTHESIS_COUNT; i++) {
        ret[i] = (struct hypothesis){.id = (enum hypothesis_id)i};
        tests[i].test(q, &ret[i]);
        weigh(&ret[i]);
    }
    qsort(ret, HYPOTHESIS_COUNT, sizeof *ret, by_score);
}
