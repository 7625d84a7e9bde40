/* Renders a diagnosis: a table of the ledger (the parts that add up to the growth of RSS), the
 * hypotheses with their evidence, and the advice. */
#include "present/diagnose.h"

#include <math.h>
#include <stdio.h>

#include "base/number.h"
#include "base/text.h"
#include "diagnose/diagnosis.h"
#include "present/cells.h"
#include "present/document.h"
#include "present/heap.h"

enum { PARTS_SHOWN = 10 };

/* ---- the ledger ---- */

static void diagnose_put_bytes(struct doc *d, enum doc_tone tone, double bytes, bool is_change)
{
    char size[TEXT_SIZE_MAX];
    doc_cell(d, isfinite(bytes) ? tone : TONE_DIM,
             is_change ? known_change(size, true, bytes) : known_size(size, true, round(bytes)));
}

/* Adds a call site and, if a library allocates there, the user's function that called the
 * library. */
static void diagnose_put_site(struct doc *d, const struct growth_row *row)
{
    bool is_merged = row->n_program && row->n_places > 1;
    doc_text(d, TONE_PLAIN, " of ");
    heap_frame_doc(d, is_merged ? row->program[0] : row->name);
    if (is_merged) {
        doc_textf(d, TONE_PLAIN, ", through %zu lines", row->n_places);
    } else if (row->n_program && !row->name->is_own) {
        doc_text(d, TONE_PLAIN, " ← ");
        heap_frame_doc(d, row->program[0]);
    }
}

/* Returns the colour of entry AT of the ledger. Call sites are shades of one colour; every other
 * entry has a colour of its own. */
static void colour_of(const struct ledger *l, size_t at, char ret[4])
{
    enum { KIND_COLOURS = 10, SITE_COLOURS = 6 };
    unsigned sites = 0;
    for (size_t i = 0; i < at; i++)
        sites += l->entries[i].site ? 1 : 0;
    if (l->entries[at].site)
        snprintf(ret, 4, "s%u", sites % SITE_COLOURS);
    else
        snprintf(ret, 4, "l%u", (unsigned)(at - sites) % KIND_COLOURS);
}

static void diagnose_put_bar(struct doc *d, const struct ledger *l, bool is_now)
{
    struct doc_part parts[LEDGER_MAX];
    double whole = fmax(l->rss_now_bytes, l->rss_start_bytes);
    for (size_t i = 0; i < l->count; i++) {
        double bytes = is_now ? l->entries[i].now_bytes : l->entries[i].start_bytes;
        parts[i].share = bytes > 0 && whole > 0 ? bytes / whole : 0;
        colour_of(l, i, parts[i].colour);
    }
    doc_bar(d, is_now ? "now" : "start", parts, l->count);
}

static void diagnose_put_entry(struct doc *d, const struct ledger *l, size_t i)
{
    const struct ledger_entry *e = &l->entries[i];
    char low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX], colour[4];
    doc_row(d);
    diagnose_put_bytes(d, TONE_STRONG, e->growth_bytes, true);
    diagnose_put_bytes(d, TONE_PLAIN, e->now_bytes, false);
    diagnose_put_bytes(d, TONE_PLAIN, e->start_bytes, false);
    doc_cell(d, TONE_PLAIN, NULL);
    colour_of(l, i, colour);
    doc_swatch(d, colour);
    doc_text(d, TONE_PLAIN, ledger_word(e->kind));
    if (e->site)
        diagnose_put_site(d, e->site);
    if (e->low_bytes >= 0 && e->high_bytes >= e->low_bytes + (1 << 20))
        doc_textf(d, TONE_PLAIN, " (%s – %s)", text_size(low, number_to_u64(round(e->low_bytes))),
                  text_size(high, number_to_u64(round(e->high_bytes))));
}

static void diagnose_put_ledger(struct doc *d, const struct ledger *l, bool all)
{
    static const struct doc_column columns[] = {
        {.title = "growth", .is_number = true},
        {.title = "now", .is_number = true},
        {.title = "start", .is_number = true},
        {.title = "what", .cut = CUT_WRAP},
    };
    char from[TEXT_TIME_MAX], to[TEXT_TIME_MAX];
    size_t shown = 0;
    double rest = 0;
    doc_fact(d, "ledger");
    doc_textf(d, TONE_PLAIN, "resident memory at %s and at %s", text_seconds(from, l->start_s),
              text_seconds(to, l->now_s));
    if (!isnan(l->named_growth_share))
        doc_textf(d, TONE_PLAIN, "; %.0f %% of its growth is explained",
                  l->named_growth_share * 100);
    diagnose_put_bar(d, l, false);
    diagnose_put_bar(d, l, true);
    doc_table(d, NULL, "table of resident memory", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < l->count; i++) {
        const struct ledger_entry *e = &l->entries[i];
        bool is_small = fabs(e->growth_bytes) < 1 << 20 && e->now_bytes < 0.02 * l->rss_now_bytes;
        bool is_shown = all || (!is_small && shown < PARTS_SHOWN);
        doc_hide(d, is_shown ? 0 : DOC_TERMINAL | DOC_MARKDOWN);
        diagnose_put_entry(d, l, i);
        shown += is_shown;
        rest += is_shown ? 0 : fmax(0, e->now_bytes);
    }
    doc_hide(d, DOC_HTML);
    if (rest > 0) {
        doc_row(d);
        diagnose_put_bytes(d, TONE_DIM, (double)NAN, false);
        diagnose_put_bytes(d, TONE_PLAIN, rest, false);
        diagnose_put_bytes(d, TONE_DIM, (double)NAN, false);
        doc_cell(d, TONE_DIM, "smaller parts (--all)");
    }
    doc_hide(d, 0);
    doc_row(d);
    diagnose_put_bytes(d, TONE_STRONG, l->rss_now_bytes - l->rss_start_bytes, true);
    diagnose_put_bytes(d, TONE_STRONG, l->rss_now_bytes, false);
    diagnose_put_bytes(d, TONE_STRONG, l->rss_start_bytes, false);
    doc_cell(d, TONE_STRONG, "RSS");
    doc_space(d);
}

/* ---- hypotheses ---- */

static void diagnose_put_side(struct doc *d, enum doc_point kind, const struct hypothesis *h,
                              enum evidence_side side)
{
    for (size_t i = 0; i < h->n_evidence; i++) {
        if (h->evidence[i].side != side)
            continue;
        doc_point(d, kind);
        doc_text(d, TONE_PLAIN, h->evidence[i].text);
    }
}

static void diagnose_put_hypothesis(struct doc *d, const struct diagnosis *v, size_t i)
{
    const struct hypothesis *h = &v->hypotheses[i];
    bool is_strong = h->word == NEARLY_CERTAIN || h->word == LIKELY;
    doc_fold(d, i == 0 ? FOLD_OPEN : FOLD_CLOSED);
    doc_textf(d, TONE_DIM, "%zu. ", i + 1);
    doc_text(d, is_strong ? TONE_STRONG : TONE_PLAIN, hypothesis_title(h->id));
    doc_textf(d, TONE_DIM, " [%s]", hypothesis_code(h->id));
    doc_textf(d, TONE_PLAIN, ": %s", hypothesis_words[h->word]);
    if (h->share > 0 && is_strong && h->id != HYPOTHESIS_NO_GROWTH)
        doc_textf(d, TONE_PLAIN, ", %.0f %% of %s", h->share * 100,
                  v->has_grown ? "the growth" : "all memory");
    diagnose_put_side(d, POINT_FOR, h, EVIDENCE_FOR);
    diagnose_put_side(d, POINT_AGAINST, h, EVIDENCE_AGAINST);
    diagnose_put_side(d, POINT_ABSENT, h, EVIDENCE_ABSENT);
    if (h->decide[0]) {
        doc_point(d, POINT_DECIDE);
        doc_text(d, TONE_PLAIN, h->decide);
    }
    doc_fold_end(d);
}

/* Adds all hypotheses with the same word as one group: "ruled out: a; b". Markdown also includes
 * the first reason against each hypothesis, so that readers of an issue need not ask for the
 * reason. */
static void diagnose_put_group(struct doc *d, const struct diagnosis *v, enum hypothesis_word word)
{
    size_t count = 0;
    for (size_t i = 0; i < v->n_hypotheses; i++) {
        if (v->hypotheses[i].word != word)
            continue;
        if (count++ == 0) {
            doc_fold(d, FOLD_GROUP);
            doc_textf(d, TONE_PLAIN, "%s: ", hypothesis_words[word]);
        }
        doc_textf(d, TONE_DIM, "%s%s", count > 1 ? "; " : "",
                  hypothesis_title(v->hypotheses[i].id));
    }
    for (size_t i = 0; count && i < v->n_hypotheses; i++)
        if (v->hypotheses[i].word == word)
            diagnose_put_hypothesis(d, v, i);
    if (count)
        doc_fold_end(d);
    doc_hide(d, DOC_TERMINAL | DOC_HTML);
    for (size_t i = 0; i < v->n_hypotheses; i++) {
        const struct hypothesis *h = &v->hypotheses[i];
        const char *against = hypothesis_evidence(h, EVIDENCE_AGAINST);
        if (h->word != word || !against)
            continue;
        doc_point(d, POINT_PLAIN);
        doc_textf(d, TONE_PLAIN, "%s: %s", hypothesis_title(h->id), against);
    }
    doc_hide(d, 0);
}

static void diagnose_put_hypotheses(struct doc *d, const struct diagnosis *v, bool all)
{
    static const enum hypothesis_word brief[] = {UNLIKELY, CANNOT_TEST, RULED_OUT};
    doc_fact(d, "hypotheses");
    doc_text(d, TONE_PLAIN, "sorted by the growth they explain");
    for (size_t i = 0; i < v->n_hypotheses; i++) {
        enum hypothesis_word word = v->hypotheses[i].word;
        if (all || (word != UNLIKELY && word != CANNOT_TEST && word != RULED_OUT))
            diagnose_put_hypothesis(d, v, i);
    }
    for (size_t k = 0; !all && k < sizeof brief / sizeof *brief; k++)
        diagnose_put_group(d, v, brief[k]);
    doc_space(d);
}

/* ---- advice ---- */

static void diagnose_put_advice(struct doc *d, const struct diagnosis *v, size_t from)
{
    for (size_t i = from; i < v->n_advice; i++) {
        doc_fact(d, i > from ? "" : from ? "also" : "help");
        doc_text(d, TONE_PLAIN, v->advice[i].what);
        if (v->advice[i].effect[0])
            doc_textf(d, TONE_PLAIN, " (%s)", v->advice[i].effect);
    }
}

void diagnose_doc(struct doc *d, const struct diagnosis *v, bool all, size_t given_advice)
{
    diagnose_put_advice(d, v, given_advice);
    doc_fact(d, "diagnosed");
    doc_text(d, TONE_PLAIN, v->verdict);
    doc_space(d);
    if (v->ledger.is_known)
        diagnose_put_ledger(d, &v->ledger, all);
    diagnose_put_hypotheses(d, v, all);
    for (size_t i = 0; i < v->n_absent; i++) {
        doc_fact(d, i ? "" : "unknown");
        doc_text(d, TONE_DIM, v->absent[i]);
    }
}

void diagnose_summary(struct doc *d, const struct diagnosis *v, size_t given_advice)
{
    const struct hypothesis *first = v->hypotheses;
    if (!v->n_hypotheses)
        return;
    const char *evidence = hypothesis_evidence(first, EVIDENCE_FOR);
    doc_fact(d, "diagnosis");
    doc_text(d, TONE_STRONG, hypothesis_title(first->id));
    doc_textf(d, TONE_PLAIN, " [%s]: %s", hypothesis_code(first->id),
              hypothesis_words[first->word]);
    if (evidence)
        doc_textf(d, TONE_PLAIN, " (%s)", evidence);
    diagnose_put_advice(d, v, given_advice);
}
