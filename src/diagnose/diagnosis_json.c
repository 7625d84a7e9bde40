/* Converts the diagnosis to JSON. */
#include <math.h>

#include "base/json.h"
#include "diagnose/diagnosis.h"

static json_t *json_whole(double v)
{
    return isfinite(v) && fabs(v) < 9e18 ? json_integer(llround(v)) : json_null();
}

static json_t *json_thousandths(double v)
{
    return isfinite(v) ? json_real(round(v * 1000) / 1000) : json_null();
}

static json_t *frame_json(const struct name *n)
{
    return json_pack("{s:o,s:o,s:o,s:o}", "function", json_text0(n->function), "file",
                     json_text0(n->file), "line", n->line ? json_integer(n->line) : json_null(),
                     "lib", json_text0(n->lib));
}

static json_t *site_json(const struct growth_row *row)
{
    if (!row)
        return json_null();
    json_t *o = frame_json(row->name);
    json_object_set_new(o, "in_program",
                        row->n_program ? frame_json(row->program[0]) : json_null());
    json_object_set_new(o, "own", json_boolean(row->name->is_own));
    if (row->n_places > 1)
        json_object_set_new(o, "place_count", json_u64(row->n_places));
    return o;
}

static json_t *ledger_json(const struct ledger *l)
{
    if (!l->is_known)
        return json_null();
    json_t *list = json_array();
    for (size_t i = 0; i < l->count; i++) {
        const struct ledger_entry *e = &l->entries[i];
        json_array_append_new(
            list,
            json_pack("{s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o}", "kind", ledger_word(e->kind), "what",
                      ledger_text(e->kind), "site", site_json(e->site), "start_bytes",
                      json_whole(e->start_bytes), "now_bytes", json_whole(e->now_bytes),
                      "low_bytes", json_whole(e->low_bytes), "high_bytes",
                      json_whole(e->high_bytes), "growth_bytes", json_whole(e->growth_bytes)));
    }
    return json_pack("{s:o,s:o,s:o,s:o,s:o,s:o}", "start_s", json_thousandths(l->start_s), "now_s",
                     json_thousandths(l->now_s), "rss_start_bytes", json_whole(l->rss_start_bytes),
                     "rss_now_bytes", json_whole(l->rss_now_bytes), "entries", list,
                     "named_growth_share", json_thousandths(l->named_growth_share));
}

static json_t *side_json(const struct hypothesis *h, enum evidence_side side)
{
    json_t *list = json_array();
    for (size_t i = 0; i < h->n_evidence; i++)
        if (h->evidence[i].side == side)
            json_array_append_new(list, json_text0(h->evidence[i].text));
    return list;
}

static json_t *hypotheses_json(const struct hypothesis *all, size_t count)
{
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) {
        const struct hypothesis *h = &all[i];
        json_array_append_new(
            list,
            json_pack("{s:s,s:s,s:s,s:s,s:o,s:o,s:o,s:o,s:o,s:o,s:o}", "key", hypothesis_key(h->id),
                      "code", hypothesis_code(h->id), "title", hypothesis_title(h->id), "word",
                      hypothesis_words[h->word], "log_odds", json_thousandths(h->log_odds), "share",
                      h->word == CANNOT_TEST ? json_null() : json_thousandths(h->share), "for",
                      side_json(h, EVIDENCE_FOR), "against", side_json(h, EVIDENCE_AGAINST),
                      "absent", side_json(h, EVIDENCE_ABSENT), "decide",
                      json_text0(h->decide[0] ? h->decide : NULL), "site", site_json(h->site)));
    }
    return list;
}

static json_t *advice_json(const struct diagnosis *d)
{
    json_t *list = json_array();
    for (size_t i = 0; i < d->n_advice; i++) {
        const struct advice *a = &d->advice[i];
        json_array_append_new(list,
                              json_pack("{s:s,s:o,s:o}", "because", hypothesis_key(a->because),
                                        "what", json_text0(a->what), "effect",
                                        json_text0(a->effect[0] ? a->effect : NULL)));
    }
    return list;
}

static json_t *main_process_json(const struct facts_process *p)
{
    enum verdict_word word = p && p->verdict.is_known ? p->verdict.word : VERDICT_UNDECIDED;
    return p ? json_pack("{s:i,s:o,s:s,s:s,s:o}", "pid", (int)p->id.pid, "name",
                         json_text0(p->name), "role", process_role_name(p->role), "verdict",
                         verdict_word_name(word), "peak_bytes", json_whole(p->peak_bytes))
             : json_null();
}

json_t *diagnosis_json(const struct diagnosis *d)
{
    json_t *absent = json_array();
    for (size_t i = 0; i < d->n_absent; i++)
        json_array_append_new(absent, json_text0(d->absent[i]));
    return json_pack("{s:i,s:o,s:o,s:b,s:b,s:o,s:o,s:o,s:o,s:o,s:o}", "format", 1, "verdict",
                     json_text0(d->verdict), "process", main_process_json(d->facts->main),
                     "running", d->facts->is_running, "grew", d->has_grown, "growth_bytes",
                     json_whole(d->growth), "ledger", ledger_json(&d->ledger), "hypotheses",
                     hypotheses_json(d->hypotheses, d->n_hypotheses), "advice", advice_json(d),
                     "kept_by", kept_json(d->kept_by), "absent", absent);
}

json_t *diagnosis_brief_json(const struct diagnosis *d)
{
    return json_pack("{s:o,s:o,s:o}", "verdict", json_text0(d->verdict), "hypotheses",
                     hypotheses_json(d->hypotheses, d->n_hypotheses ? 1 : 0), "advice",
                     advice_json(d));
}
