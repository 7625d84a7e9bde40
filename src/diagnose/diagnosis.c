/* Combines facts, ledger, hypotheses and advice into one diagnosis. */
#include "diagnose/diagnosis.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/number.h"
#include "base/text.h"

/* Writes a sentence such as "process 4711 python (main): leaking, from 405 MiB to 806 MiB,
 * +1.64 MiB/step". */
static void write_verdict(const struct question *q, char ret[DIAGNOSIS_VERDICT])
{
    const struct facts_process *p = q->f->main;
    char from[TEXT_SIZE_MAX], to[TEXT_SIZE_MAX], rate_text[TEXT_SIZE_MAX + 8] = "";
    if (!p || isnan(q->growth)) {
        snprintf(ret, DIAGNOSIS_VERDICT, "the job's memory was not sampled");
        return;
    }
    bool is_by_step = !isnan(p->verdict.per_step);
    double rate = is_by_step ? p->verdict.per_step : p->verdict.per_min;
    if (p->verdict.leak == VERDICT_LEAK_YES && !isnan(rate))
        snprintf(rate_text, sizeof rate_text, ", %s/%s",
                 text_size_signed(from, number_to_i64(rate)), is_by_step ? "step" : "min");
    snprintf(ret, DIAGNOSIS_VERDICT, "process %d %s (%s): %s, from %s to %s%s", (int)p->id.pid,
             p->name, process_role_name(p->role), verdict_word_name(q->word),
             text_size(from, number_to_u64(q->base)),
             text_size(to, number_to_u64(q->base + q->growth)), rate_text);
}

static void add_absent(struct diagnosis *d, const char *text)
{
    for (size_t i = 0; i < d->n_absent; i++)
        if (strcmp(d->absent[i], text) == 0)
            return;
    if (d->n_absent < DIAGNOSIS_ABSENT)
        d->absent[d->n_absent++] = text;
}

static void add_all_absent(const struct facts *f, struct diagnosis *d)
{
    const struct {
        bool is_absent;
        const char *text;
    } parts[] = {
        {f->is_damaged, "part of the recording is damaged or missing: the diagnosis uses the rest"},
        {!f->has_run_json, "no run.json: the job's settings and exit status are unknown"},
        {f->n_marks == 0, "no marks: steps, epochs and evaluations are unknown"},
        {!f->heap.profile, "no heap profile: the allocating line is unknown"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (parts[i].is_absent)
            add_absent(d, parts[i].text);
    for (size_t i = 0; i < d->n_hypotheses; i++)
        for (size_t k = 0; k < d->hypotheses[i].n_evidence; k++)
            if (d->hypotheses[i].evidence[k].side == EVIDENCE_ABSENT)
                add_absent(d, d->hypotheses[i].evidence[k].text);
}

/* Returns true if the first hypothesis is fragmentation of GPU memory and is at least likely. */
static bool is_fragmented(const struct hypothesis *first)
{
    return first->id == HYPOTHESIS_GPU_FRAGMENTS &&
           (first->word == LIKELY || first->word == NEARLY_CERTAIN);
}

int diagnosis_new(const struct recorded *recorded, struct diagnosis **ret, struct err *err)
{
    struct diagnosis *d = calloc(1, sizeof *d);
    struct question q;
    if (!d)
        return err_set(err, -ENOMEM, "out of memory");
    int r = facts_new(recorded, &d->facts, err);
    if (r < 0) {
        free(d);
        return r;
    }
    const struct facts *f = d->facts;
    ledger_make(f, &d->ledger);
    question_make(f, &d->ledger, &q);
    write_verdict(&q, d->verdict);
    d->growth = q.growth;
    hypotheses_test(&q, d->hypotheses);
    d->n_hypotheses = HYPOTHESIS_COUNT;
    d->n_advice = advice_make(&q, d->hypotheses, d->advice);
    d->has_grown = q.has_grown || (f->gpu.is_known && f->gpu.leak == VERDICT_LEAK_YES) ||
                   is_fragmented(&d->hypotheses[0]);
    d->kept_by = f->main ? kept_of(&f->kept, f->main->id.pid) : NULL;
    add_all_absent(f, d);
    *ret = d;
    return 0;
}

void diagnosis_free(struct diagnosis *d)
{
    if (d)
        facts_free(d->facts);
    free(d);
}
