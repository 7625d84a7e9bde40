/* The diagnosis as a document. */
#include "diagnose/diagnose.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/json.h"
#include "base/text.h"
#include "diagnose/advice.h"
#include "diagnose/hypothesis.h"
#include "diagnose/ledger.h"

enum { FORMAT = 1 };

static json_t *bytes_json(double v)
{
    return isfinite(v) && fabs(v) < 9e18 ? json_integer((json_int_t)llround(v)) : json_null();
}

static json_t *share_json(double v)
{
    return isfinite(v) ? json_real(round(v * 1000) / 1000) : json_null();
}

static json_t *seconds_json(double v)
{
    return isfinite(v) ? json_real(round(v * 1000) / 1000) : json_null();
}

/* ---- what it is about ---- */

static char *size_text(char out[TEXT_SIZE_MAX], double bytes)
{
    return text_size(out, bytes > 0 && bytes < 9e18 ? (uint64_t)bytes : 0);
}

static char *change_text(char out[TEXT_SIZE_MAX], double bytes)
{
    return text_size_signed(out, fabs(bytes) < 9e18 ? (int64_t)llround(bytes) : 0);
}

/* "process 4711 python (main): leaking, from 405 MiB to 806 MiB, +1.64 MiB a step" */
static json_t *verdict_json(const struct question *q)
{
    const struct facts_process *p = q->f->main;
    char a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX];
    struct buf text = {0};
    if (!p || isnan(q->growth))
        return json_string("nothing was read of the job's memory");
    buf_printf(&text, "process %d ", (int)p->id.pid);
    buf_add_str(&text, p->name);
    buf_printf(&text, " (%s): %s, from %s to %s", process_role_name(p->role),
               verdict_word_name(q->word), size_text(a, q->base),
               size_text(b, q->base + q->growth));
    if (p->verdict.leak == VERDICT_LEAK_YES && !isnan(p->verdict.per_step))
        buf_printf(&text, ", %s a step", change_text(a, p->verdict.per_step));
    else if (p->verdict.leak == VERDICT_LEAK_YES && !isnan(p->verdict.per_min))
        buf_printf(&text, ", %s a minute", change_text(a, p->verdict.per_min));
    json_t *one = json_text(buf_str(&text), text.len);
    buf_fini(&text);
    return one;
}

static json_t *process_json(const struct facts *f)
{
    const struct facts_process *p = f->main;
    if (!p)
        return json_null();
    return json_pack("{s:i,s:o,s:s,s:s,s:o}", "pid", (int)p->id.pid, "name", json_text0(p->name),
                     "role", process_role_name(p->role), "verdict",
                     p->verdict.is_known ? verdict_word_name(p->verdict.word) : "undecided",
                     "peak_bytes", bytes_json(p->peak_bytes));
}

/* ---- the ledger ---- */

static json_t *frame_json(const struct name *n)
{
    return json_pack("{s:o,s:o,s:o,s:o}", "function", json_text0(n->function), "file",
                     json_text0(n->file), "line", n->line ? json_integer(n->line) : json_null(),
                     "lib", json_text0(n->lib));
}

/* The line that allocates, and the innermost of the program's own that it was reached from. */
static json_t *site_json(const struct growth_row *row)
{
    if (!row)
        return json_null();
    json_t *site = frame_json(row->name);
    json_object_set_new(site, "in_program",
                        row->n_program ? frame_json(row->program[0]) : json_null());
    json_object_set_new(site, "own", json_boolean(row->name->is_own));
    if (row->n_places > 1)
        json_object_set_new(site, "place_count", json_integer((json_int_t)row->n_places));
    return site;
}

static json_t *entry_json(const struct ledger_entry *e)
{
    return json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o}", "kind", ledger_word(e->kind), "what",
                     ledger_text(e->kind), "site", site_json(e->site), "start_bytes",
                     bytes_json(e->start_bytes), "now_bytes", bytes_json(e->now_bytes), "low_bytes",
                     bytes_json(e->low_bytes), "high_bytes", bytes_json(e->high_bytes),
                     "growth_bytes", bytes_json(e->growth_bytes));
}

static json_t *ledger_json(const struct ledger *l)
{
    json_t *entries = json_array();
    for (size_t i = 0; i < l->count; i++)
        json_array_append_new(entries, entry_json(&l->entries[i]));
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "start_s", seconds_json(l->start_s), "now_s",
                     seconds_json(l->now_s), "rss_start_bytes", bytes_json(l->rss_start_bytes),
                     "rss_now_bytes", bytes_json(l->rss_now_bytes), "entries", entries,
                     "named_growth_share", share_json(l->named_growth_share));
}

/* ---- hypotheses ---- */

static json_t *side_json(const struct hypothesis *h, enum evidence_side side)
{
    json_t *list = json_array();
    for (size_t i = 0; i < h->n_evidence; i++)
        if (h->evidence[i].side == side)
            json_array_append_new(list, json_text0(h->evidence[i].text));
    return list;
}

static json_t *hypothesis_json(const struct hypothesis *h)
{
    return json_pack("{s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "key", hypothesis_key(h->id),
                     "title", hypothesis_title(h->id), "word", hypothesis_word_text(h->word),
                     "log_odds", share_json(h->log_odds), "share",
                     h->word == CANNOT_TEST ? json_null() : share_json(h->share), "for",
                     side_json(h, EVIDENCE_FOR), "against", side_json(h, EVIDENCE_AGAINST),
                     "absent", side_json(h, EVIDENCE_ABSENT), "decide",
                     h->decide[0] ? json_text0(h->decide) : json_null(), "site",
                     site_json(h->site));
}

static json_t *advice_json(const struct advice *a)
{
    return json_pack("{s:s,s:o,s:o}", "because", hypothesis_key(a->because), "what",
                     json_text0(a->what), "effect",
                     a->effect[0] ? json_text0(a->effect) : json_null());
}

/* ---- what is missing ---- */

static void add_once(json_t *list, const char *text)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        if (strcmp(json_string_value(one), text) == 0)
            return;
    }
    json_array_append_new(list, json_text0(text));
}

static json_t *absent_json(const struct facts *f, const struct hypothesis ranked[HYPOTHESIS_COUNT])
{
    json_t *list = json_array();
    if (f->is_damaged)
        add_once(list, "a part of the recording is damaged or cut off: this is what can be read");
    if (!f->run)
        add_once(list, "there is no run.json: how it ended, and what was set, is not known");
    if (f->n_marks == 0)
        add_once(list, "no marks: steps, epochs and evaluations are not known");
    if (!f->heap.profile)
        add_once(list, "no heap profile: which line holds the memory is not known");
    for (int i = 0; i < HYPOTHESIS_COUNT; i++)
        for (size_t k = 0; k < ranked[i].n_evidence; k++)
            if (ranked[i].evidence[k].side == EVIDENCE_ABSENT)
                add_once(list, ranked[i].evidence[k].text);
    return list;
}

json_t *diagnose_json(const struct facts *f)
{
    struct ledger ledger;
    struct question q;
    struct hypothesis ranked[HYPOTHESIS_COUNT];
    struct advice advice[ADVICE_MAX];
    json_t *hypotheses = json_array(), *what = json_array();
    ledger_make(f, &ledger);
    question_ask(f, &ledger, &q);
    hypotheses_test(&q, ranked);
    size_t n = advice_make(&q, ranked, advice);
    for (int i = 0; i < HYPOTHESIS_COUNT; i++)
        json_array_append_new(hypotheses, hypothesis_json(&ranked[i]));
    for (size_t i = 0; i < n; i++)
        json_array_append_new(what, advice_json(&advice[i]));
    return json_pack("{s:i,s:o,s:o,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:o}", "format", FORMAT, "verdict",
                     verdict_json(&q), "process", process_json(f), "running", (int)f->is_running,
                     "grew", (int)q.has_grown, "growth_bytes", bytes_json(q.growth), "ledger",
                     ledger.is_known ? ledger_json(&ledger) : json_null(), "hypotheses", hypotheses,
                     "advice", what, "kept_by",
                     kept_json(f->main ? kept_of(&f->kept, f->main->id.pid) : NULL), "absent",
                     absent_json(f, ranked));
}
