/* Combines facts, ledger, hypotheses and advice into one diagnosis. */
#include "diagnose/diagnosis.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/number.h"
#include "base/text.h"
#include "diagnose/advice.h"
#include "diagnose/ledger.h"

enum { DIAGNOSIS_FORMAT = 1, ABSENT_MAX = 64 };

/* ---- values; if out of memory, a value is omitted and *FAILED is set ---- */

static char *copied(const char *s, bool *failed)
{
    char *copy = s ? strdup(s) : NULL;
    *failed |= s && !copy;
    return copy;
}

static void *allocated(size_t count, size_t size, bool *failed)
{
    void *at = calloc(count ? count : 1, size);
    *failed |= !at;
    return at;
}

static bool set_whole(double v, int64_t *ret)
{
    bool is_known = isfinite(v) && fabs(v) < 9e18;
    *ret = is_known ? llround(v) : 0;
    return is_known;
}

static bool set_thousandths(double v, double *ret)
{
    *ret = isfinite(v) ? round(v * 1000) / 1000 : 0;
    return isfinite(v);
}

/* ---- verdict and process ---- */

/* Returns a sentence such as "process 4711 python (main): leaking, from 405 MiB to 806 MiB,
 * +1.64 MiB/step". */
static char *verdict_sentence(const struct question *q, bool *failed)
{
    const struct facts_process *p = q->f->main;
    char a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX];
    struct buf text = {0};
    if (!p || isnan(q->growth))
        return copied("the job's memory was not sampled", failed);
    double rate = isnan(p->verdict.per_step) ? p->verdict.per_min : p->verdict.per_step;
    buf_printf(&text, "process %d ", (int)p->id.pid);
    buf_add_str(&text, p->name);
    buf_printf(&text, " (%s): %s, from %s to %s", process_role_name(p->role),
               verdict_word_name(q->word), text_size(a, number_to_u64(q->base)),
               text_size(b, number_to_u64(q->base + q->growth)));
    if (p->verdict.leak == VERDICT_LEAK_YES && !isnan(rate))
        buf_printf(&text, ", %s/%s", text_size_signed(a, number_to_i64(rate)),
                   isnan(p->verdict.per_step) ? "min" : "step");
    char *sentence = copied(buf_str(&text), failed);
    buf_fini(&text);
    return sentence;
}

static void set_process(const struct facts_process *p, struct diagnosis *ret, bool *failed)
{
    ret->has_process = p;
    if (!p)
        return;
    ret->process.pid = p->id.pid;
    ret->process.name = copied(p->name, failed);
    ret->process.role = copied(process_role_name(p->role), failed);
    ret->process.verdict = copied(
        verdict_word_name(p->verdict.is_known ? p->verdict.word : VERDICT_UNDECIDED), failed);
    ret->process.has_peak_bytes = set_whole(p->peak_bytes, &ret->process.peak_bytes);
}

/* ---- the ledger ---- */

static bool set_site(const struct growth_row *row, struct diagnosis_site *ret, bool *failed)
{
    if (!row)
        return false;
    *failed |= profile_frame_copy(row->name, &ret->where) < 0;
    ret->has_in_program = row->n_program > 0;
    if (ret->has_in_program)
        *failed |= profile_frame_copy(row->program[0], &ret->in_program) < 0;
    ret->has_place_count = row->n_places > 1;
    ret->place_count = row->n_places;
    return true;
}

static void set_part(const struct ledger_entry *e, struct diagnosis_part *ret, bool *failed)
{
    ret->kind = copied(ledger_word(e->kind), failed);
    ret->what = copied(ledger_text(e->kind), failed);
    ret->has_site = set_site(e->site, &ret->site, failed);
    ret->has_start_bytes = set_whole(e->start_bytes, &ret->start_bytes);
    ret->has_now_bytes = set_whole(e->now_bytes, &ret->now_bytes);
    ret->has_low_bytes = set_whole(e->low_bytes, &ret->low_bytes);
    ret->has_high_bytes = set_whole(e->high_bytes, &ret->high_bytes);
    ret->has_growth_bytes = set_whole(e->growth_bytes, &ret->growth_bytes);
}

static void set_ledger(const struct ledger *l, struct diagnosis_ledger *ret, bool *failed)
{
    ret->has_start_s = set_thousandths(l->start_s, &ret->start_s);
    ret->has_now_s = set_thousandths(l->now_s, &ret->now_s);
    ret->has_rss_start_bytes = set_whole(l->rss_start_bytes, &ret->rss_start_bytes);
    ret->has_rss_now_bytes = set_whole(l->rss_now_bytes, &ret->rss_now_bytes);
    ret->has_named_growth_share = set_thousandths(l->named_growth_share, &ret->named_growth_share);
    ret->parts = allocated(l->count, sizeof *ret->parts, failed);
    ret->n_parts = ret->parts ? l->count : 0;
    for (size_t i = 0; i < ret->n_parts; i++)
        set_part(&l->entries[i], &ret->parts[i], failed);
}

/* ---- hypotheses ---- */

static void set_side(const struct hypothesis *h, enum evidence_side side, char ***ret,
                     size_t *ret_count, bool *failed)
{
    *ret = allocated(h->n_evidence, sizeof **ret, failed);
    for (size_t i = 0; *ret && i < h->n_evidence; i++)
        if (h->evidence[i].side == side)
            (*ret)[(*ret_count)++] = copied(h->evidence[i].text, failed);
}

static void set_hypothesis(const struct hypothesis *h, struct diagnosis_hypothesis *ret,
                           bool *failed)
{
    ret->key = copied(hypothesis_key(h->id), failed);
    ret->code = copied(hypothesis_code(h->id), failed);
    ret->title = copied(hypothesis_title(h->id), failed);
    ret->word = h->word;
    ret->has_log_odds = set_thousandths(h->log_odds, &ret->log_odds);
    ret->has_share = set_thousandths(h->share, &ret->share) && h->word != CANNOT_TEST;
    set_side(h, EVIDENCE_FOR, &ret->pro, &ret->n_pro, failed);
    set_side(h, EVIDENCE_AGAINST, &ret->contra, &ret->n_contra, failed);
    set_side(h, EVIDENCE_ABSENT, &ret->absent, &ret->n_absent, failed);
    ret->decide = copied(h->decide[0] ? h->decide : NULL, failed);
    ret->has_site = set_site(h->site, &ret->site, failed);
}

static void set_hypotheses(const struct question *q, struct diagnosis *ret, bool *failed)
{
    struct hypothesis *ranked = allocated(HYPOTHESIS_COUNT, sizeof *ranked, failed);
    struct advice advice[ADVICE_MAX];
    ret->hypotheses = allocated(HYPOTHESIS_COUNT, sizeof *ret->hypotheses, failed);
    ret->advice = allocated(ADVICE_MAX, sizeof *ret->advice, failed);
    if (!*failed) {
        hypotheses_test(q, ranked);
        ret->n_hypotheses = HYPOTHESIS_COUNT;
        ret->n_advice = advice_make(q, ranked, advice);
    }
    for (size_t i = 0; i < ret->n_hypotheses; i++)
        set_hypothesis(&ranked[i], &ret->hypotheses[i], failed);
    for (size_t i = 0; i < ret->n_advice; i++) {
        const struct advice *a = &advice[i];
        ret->advice[i] =
            (struct diagnosis_advice){.because = copied(hypothesis_key(a->because), failed),
                                      .what = copied(a->what, failed),
                                      .effect = copied(a->effect[0] ? a->effect : NULL, failed)};
    }
    free(ranked);
}

/* ---- containers, and missing measurements ---- */

static void set_kept(const struct kept_list *l, struct diagnosis *ret, bool *failed)
{
    char text[KEPT_TEXT_MAX];
    ret->kept_by = allocated(l ? l->count : 0, sizeof *ret->kept_by, failed);
    for (size_t i = 0; ret->kept_by && l && i < l->count; i++)
        ret->kept_by[ret->n_kept_by++] =
            (struct diagnosis_container){.name = copied(l->at[i].name, failed),
                                         .type = copied(l->at[i].type, failed),
                                         .text = copied(kept_text(text, l, i), failed),
                                         .added = number_to_u64(l->at[i].added),
                                         .bytes = number_to_u64(l->at[i].bytes),
                                         .has_since_step = l->since_step >= 0,
                                         .since_step = l->since_step,
                                         .has_step = l->step >= 0,
                                         .step = l->step};
}

static void add_absent(struct diagnosis *d, const char *text, bool *failed)
{
    for (size_t i = 0; i < d->n_absent; i++)
        if (d->absent[i] && strcmp(d->absent[i], text) == 0)
            return;
    char *copy = d->n_absent < ABSENT_MAX ? copied(text, failed) : NULL;
    if (copy)
        d->absent[d->n_absent++] = copy;
}

static void set_absent(const struct facts *f, struct diagnosis *ret, bool *failed)
{
    const struct {
        bool is_absent;
        const char *text;
    } parts[] = {
        {f->is_damaged, "part of the recording is damaged or missing: the diagnosis uses the rest"},
        {!f->has_run_json, "no run.json: the job's settings and how it ended are unknown"},
        {f->n_marks == 0, "no marks: steps, epochs and evaluations are unknown"},
        {!f->heap.profile, "no heap profile: the allocating line is unknown"},
    };
    ret->absent = allocated(ABSENT_MAX, sizeof *ret->absent, failed);
    if (!ret->absent)
        return;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].is_absent)
            add_absent(ret, parts[i].text, failed);
    for (size_t i = 0; i < ret->n_hypotheses; i++)
        for (size_t k = 0; k < ret->hypotheses[i].n_absent; k++)
            if (ret->hypotheses[i].absent[k])
                add_absent(ret, ret->hypotheses[i].absent[k], failed);
}

/* Returns true if the first hypothesis is fragmentation of GPU memory, and it is likely. */
static bool names_fragments(const struct diagnosis *d)
{
    const struct diagnosis_hypothesis *h = d->n_hypotheses ? d->hypotheses : NULL;
    return h && h->key && strcmp(h->key, hypothesis_key(HYPOTHESIS_GPU_FRAGMENTS)) == 0 &&
           (h->word == LIKELY || h->word == NEARLY_CERTAIN);
}

int diagnosis_make(const struct facts *f, struct diagnosis *ret, struct err *err)
{
    struct ledger ledger;
    struct question q;
    struct diagnosis d = {.format = DIAGNOSIS_FORMAT, .is_running = f->is_running};
    bool failed = false;
    ledger_make(f, &ledger);
    question_make(f, &ledger, &q);
    d.verdict = verdict_sentence(&q, &failed);
    set_process(f->main, &d, &failed);
    d.has_grown = q.has_grown || (f->gpu.is_known && f->gpu.leak == VERDICT_LEAK_YES);
    d.has_growth_bytes = set_whole(q.growth, &d.growth_bytes);
    d.has_ledger = ledger.is_known;
    if (d.has_ledger)
        set_ledger(&ledger, &d.ledger, &failed);
    set_hypotheses(&q, &d, &failed);
    d.has_grown = d.has_grown || names_fragments(&d);
    set_kept(f->main ? kept_of(&f->kept, f->main->id.pid) : NULL, &d, &failed);
    set_absent(f, &d, &failed);
    if (failed) {
        diagnosis_fini(&d);
        return err_set(err, -ENOMEM, "out of memory");
    }
    *ret = d;
    return 0;
}
