/* Renders a diagnosis: the ledger as a table, the hypotheses with their evidence, and the
 * advice. */
#include "present/diagnose.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "diagnose/diagnosis.h"
#include "present/document.h"
#include "present/heap.h"

enum { PARTS_SHOWN = 10 };

/* Returns S, or "" if S is NULL. */
static const char *text_or_empty(const char *s)
{
    return s ? s : "";
}

/* ---- the ledger ---- */

static void diagnose_put_bytes(struct doc *d, enum doc_tone tone, bool has, int64_t bytes,
                               bool is_change)
{
    char size[TEXT_SIZE_MAX];
    doc_cell(d, has ? tone : TONE_DIM,
             !has        ? "–"
             : is_change ? text_size_signed(size, bytes)
                         : text_size(size, bytes > 0 ? (uint64_t)bytes : 0));
}

/* Adds a call site, and the user's own function if a library allocates for it. */
static void diagnose_put_site(struct doc *d, const struct diagnosis_site *s)
{
    bool is_merged = s->has_in_program && s->place_count > 1;
    doc_text(d, TONE_PLAIN, " of ");
    heap_frame_doc(d, is_merged ? &s->in_program : &s->where);
    if (is_merged) {
        doc_textf(d, TONE_PLAIN, ", through %" PRIu64 " lines", s->place_count);
    } else if (s->has_in_program && !s->where.is_own) {
        doc_text(d, TONE_PLAIN, " ← ");
        heap_frame_doc(d, &s->in_program);
    }
}

/* Returns the colour of part AT. Call sites are shades of one colour; every other kind has its
 * own. */
static void colour_of(const struct diagnosis_ledger *l, size_t at, char ret[4])
{
    enum { KIND_COLOURS = 10, SITE_COLOURS = 6 };
    unsigned sites = 0;
    for (size_t i = 0; i < at; i++)
        sites += l->parts[i].has_site;
    if (l->parts[at].has_site)
        snprintf(ret, 4, "s%u", sites % SITE_COLOURS);
    else
        snprintf(ret, 4, "l%u", (unsigned)(at - sites) % KIND_COLOURS);
}

static void diagnose_put_bar(struct doc *d, const struct diagnosis_ledger *l, bool is_now)
{
    struct doc_part *parts = calloc(l->n_parts + 1, sizeof *parts);
    int64_t whole = l->rss_now_bytes > l->rss_start_bytes ? l->rss_now_bytes : l->rss_start_bytes;
    for (size_t i = 0; parts && i < l->n_parts; i++) {
        int64_t bytes = is_now ? l->parts[i].now_bytes : l->parts[i].start_bytes;
        parts[i].share = bytes > 0 && whole > 0 ? (double)bytes / (double)whole : 0;
        colour_of(l, i, parts[i].colour);
    }
    if (parts)
        doc_bar(d, is_now ? "now" : "start", parts, l->n_parts);
    free(parts);
}

static void diagnose_put_part(struct doc *d, const struct diagnosis_ledger *l, size_t i)
{
    const struct diagnosis_part *p = &l->parts[i];
    char low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX], colour[4];
    doc_row(d);
    diagnose_put_bytes(d, TONE_STRONG, p->has_growth_bytes, p->growth_bytes, true);
    diagnose_put_bytes(d, TONE_PLAIN, p->has_now_bytes, p->now_bytes, false);
    diagnose_put_bytes(d, TONE_PLAIN, p->has_start_bytes, p->start_bytes, false);
    doc_cell(d, TONE_PLAIN, NULL);
    colour_of(l, i, colour);
    doc_swatch(d, colour);
    doc_text(d, TONE_PLAIN, p->kind);
    if (p->has_site)
        diagnose_put_site(d, &p->site);
    if (p->low_bytes >= 0 && p->high_bytes >= p->low_bytes + (1 << 20))
        doc_textf(d, TONE_PLAIN, " (%s – %s)", text_size(low, (uint64_t)p->low_bytes),
                  text_size(high, (uint64_t)p->high_bytes));
}

static void diagnose_put_ledger(struct doc *d, const struct diagnosis_ledger *l, bool all)
{
    static const struct doc_column columns[] = {
        {.title = "growth", .is_number = true},
        {.title = "now", .is_number = true},
        {.title = "start", .is_number = true},
        {.title = "what", .cut = CUT_WRAP},
    };
    char from[TEXT_TIME_MAX], to[TEXT_TIME_MAX];
    size_t shown = 0;
    int64_t rest = 0;
    doc_fact(d, "ledger");
    doc_textf(d, TONE_PLAIN, "resident memory at %s and at %s", text_seconds(from, l->start_s),
              text_seconds(to, l->now_s));
    if (l->has_named_growth_share)
        doc_textf(d, TONE_PLAIN, "; %.0f %% of its growth is explained",
                  l->named_growth_share * 100);
    diagnose_put_bar(d, l, false);
    diagnose_put_bar(d, l, true);
    doc_table(d, NULL, "table of the ledger", columns, sizeof columns / sizeof *columns);
    for (size_t i = 0; i < l->n_parts; i++) {
        const struct diagnosis_part *p = &l->parts[i];
        bool is_small = llabs(p->growth_bytes) < 1 << 20 &&
                        (double)p->now_bytes < 0.02 * (double)l->rss_now_bytes;
        bool is_shown = all || (!is_small && shown < PARTS_SHOWN);
        doc_hide(d, is_shown ? 0 : DOC_TERMINAL | DOC_MARKDOWN);
        diagnose_put_part(d, l, i);
        shown += is_shown;
        if (!is_shown && p->now_bytes > 0 && p->now_bytes < INT64_MAX / 4096)
            rest += p->now_bytes;
    }
    doc_hide(d, DOC_HTML);
    if (rest) {
        doc_row(d);
        diagnose_put_bytes(d, TONE_DIM, false, 0, false);
        diagnose_put_bytes(d, TONE_PLAIN, true, rest, false);
        diagnose_put_bytes(d, TONE_DIM, false, 0, false);
        doc_cell(d, TONE_DIM, "smaller parts (--all)");
    }
    doc_hide(d, 0);
    doc_row(d);
    diagnose_put_bytes(d, TONE_STRONG, l->has_rss_start_bytes && l->has_rss_now_bytes,
                       (int64_t)((uint64_t)l->rss_now_bytes - (uint64_t)l->rss_start_bytes), true);
    diagnose_put_bytes(d, TONE_STRONG, l->has_rss_now_bytes, l->rss_now_bytes, false);
    diagnose_put_bytes(d, TONE_STRONG, l->has_rss_start_bytes, l->rss_start_bytes, false);
    doc_cell(d, TONE_STRONG, "RSS");
    doc_space(d);
}

/* ---- hypotheses ---- */

static void diagnose_put_side(struct doc *d, enum doc_point kind, char *const *sentences,
                              size_t count)
{
    for (size_t i = 0; i < count; i++) {
        doc_point(d, kind);
        doc_text(d, TONE_PLAIN, sentences[i]);
    }
}

static void diagnose_put_hypothesis(struct doc *d, const struct diagnosis *v, size_t i)
{
    const struct diagnosis_hypothesis *h = &v->hypotheses[i];
    bool is_strong = h->word == NEARLY_CERTAIN || h->word == LIKELY;
    doc_fold(d, i == 0 ? FOLD_OPEN : FOLD_CLOSED);
    doc_textf(d, TONE_DIM, "%zu. ", i + 1);
    doc_text(d, is_strong ? TONE_STRONG : TONE_PLAIN, h->title);
    if (h->code)
        doc_textf(d, TONE_DIM, " [%s]", h->code);
    doc_textf(d, TONE_PLAIN, ": %s", hypothesis_words[h->word]);
    if (h->share > 0 && is_strong)
        doc_textf(d, TONE_PLAIN, ", %.0f %% of it", h->share * 100);
    diagnose_put_side(d, POINT_FOR, h->pro, h->n_pro);
    diagnose_put_side(d, POINT_AGAINST, h->contra, h->n_contra);
    diagnose_put_side(d, POINT_ABSENT, h->absent, h->n_absent);
    diagnose_put_side(d, POINT_DECIDE, &h->decide, h->decide ? 1 : 0);
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
                  text_or_empty(v->hypotheses[i].title));
    }
    for (size_t i = 0; count && i < v->n_hypotheses; i++)
        if (v->hypotheses[i].word == word)
            diagnose_put_hypothesis(d, v, i);
    if (count)
        doc_fold_end(d);
    doc_hide(d, DOC_TERMINAL | DOC_HTML);
    for (size_t i = 0; i < v->n_hypotheses; i++) {
        const struct diagnosis_hypothesis *h = &v->hypotheses[i];
        if (h->word != word || !h->n_contra)
            continue;
        doc_point(d, POINT_PLAIN);
        doc_textf(d, TONE_PLAIN, "%s: %s", text_or_empty(h->title), h->contra[0]);
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

static void diagnose_put_advice(struct doc *d, const struct diagnosis *v, size_t from, size_t most)
{
    for (size_t i = from; i < v->n_advice && i < most; i++) {
        doc_fact(d, i > from ? "" : from ? "also" : "help");
        doc_text(d, TONE_PLAIN, v->advice[i].what);
        if (v->advice[i].effect)
            doc_textf(d, TONE_PLAIN, " (%s)", v->advice[i].effect);
    }
}

void diagnose_doc(struct doc *d, const struct diagnosis *v, bool all, size_t given_advice)
{
    diagnose_put_advice(d, v, given_advice, v->n_advice);
    doc_fact(d, "diagnosed");
    doc_text(d, TONE_PLAIN, v->verdict);
    doc_space(d);
    if (v->has_ledger)
        diagnose_put_ledger(d, &v->ledger, all);
    diagnose_put_hypotheses(d, v, all);
    for (size_t i = 0; i < v->n_absent; i++) {
        doc_fact(d, i ? "" : "unknown");
        doc_text(d, TONE_DIM, v->absent[i]);
    }
}

void diagnose_summary(struct doc *d, const struct diagnosis *v, size_t given_advice)
{
    const struct diagnosis_hypothesis *first = v->hypotheses;
    if (!v->n_hypotheses)
        return;
    doc_fact(d, "diagnosis");
    doc_textf(d, TONE_STRONG, "%s", text_or_empty(first->title));
    doc_textf(d, TONE_PLAIN, " [%s]: %s", text_or_empty(first->code),
              hypothesis_words[first->word]);
    if (first->n_pro)
        doc_textf(d, TONE_PLAIN, " (%s)", first->pro[0]);
    diagnose_put_advice(d, v, given_advice, v->n_advice);
}
