/* A diagnosis in words: the ledger as a table, the hypotheses with their evidence, what to do. */
#include "present/diagnose.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/number.h"
#include "base/text.h"
#include "present/cells.h"
#include "present/page.h"

enum { FIGURE_WIDTH = 11, EVIDENCE_INDENT = 5, WIDTH_DEFAULT = 80, ENTRIES_MAX = 10 };

static double number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : (double)NAN;
}

/* Text in a document that others may have written: "" for what is not a string. */
static const char *sentence(const json_t *element)
{
    const char *s = json_string_value(element);
    return s ? s : "";
}

static const char *string(const json_t *o, const char *key)
{
    return sentence(json_object_get(o, key));
}

static bool is_word(const json_t *hypothesis, const char *word)
{
    return strcmp(string(hypothesis, "word"), word) == 0;
}

/* ---- text of others ---- */

/* Harmless, and on as many lines as it takes; lines that go on begin at INDENT. */
static void put_text(struct page *p, enum style style, size_t indent, const char *s)
{
    struct buf text = {0};
    text_escape(&text, s, strlen(s));
    p->indent = indent;
    page_words(p, style, buf_str(&text));
    p->indent = 0;
    buf_fini(&text);
}

static void put_labelled(struct page *p, const char *label, enum style style, const char *s)
{
    page_put(p, STYLE_DIM, label);
    page_pad(p, LABEL_COLUMNS);
    put_text(p, style, LABEL_COLUMNS, s);
    page_line(p);
}

/* ---- the ledger ---- */

static void put_size(struct page *p, enum style style, double bytes, bool is_change)
{
    char text[TEXT_SIZE_MAX];
    size_t end = p->column + FIGURE_WIDTH;
    if (!(fabs(bytes) < 9e18))
        snprintf(text, sizeof text, "–");
    else if (is_change)
        text_size_signed(text, number_to_i64(bytes));
    else
        text_size(text, number_to_u64(bytes));
    size_t width = cell_columns(text);
    page_pad(p, end > width ? end - width : p->column);
    page_put(p, style, text);
}

static void put_frame(struct buf *out, const json_t *site)
{
    const char *file = string(site, "file"), *slash = strrchr(file, '/');
    const json_t *line = json_object_get(site, "line");
    if (file[0])
        buf_add_str(out, slash ? slash + 1 : file);
    if (file[0] && json_is_integer(line))
        buf_printf(out, ":%lld", (long long)json_integer_value(line));
    buf_printf(out, "%s%s", file[0] ? " " : "", string(site, "function"));
}

/* With the program's own function, where another allocates for it. */
static void put_site(struct buf *out, const json_t *site)
{
    const json_t *own = json_object_get(site, "in_program");
    json_int_t places = json_integer_value(json_object_get(site, "place_count"));
    if (json_is_object(own) && places > 1) {
        put_frame(out, own);
        buf_printf(out, ", through %lld lines", (long long)places);
        return;
    }
    put_frame(out, site);
    if (json_is_object(own) && !json_is_true(json_object_get(site, "own"))) {
        buf_add_str(out, " ← ");
        put_frame(out, own);
    }
}

static void put_entry(struct page *p, const json_t *e)
{
    struct buf what = {0};
    char bounds[2 * TEXT_SIZE_MAX + 8], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    double least = number(e, "low_bytes"), most = number(e, "high_bytes");
    const json_t *site = json_object_get(e, "site");
    put_size(p, STYLE_STRONG, number(e, "growth_bytes"), true);
    put_size(p, STYLE_PLAIN, number(e, "now_bytes"), false);
    put_size(p, STYLE_PLAIN, number(e, "start_bytes"), false);
    page_pad(p, p->column + 2);
    buf_add_str(&what, string(e, "kind"));
    if (json_is_object(site)) {
        buf_add_str(&what, " of ");
        put_site(&what, site);
    }
    if (most - least >= 1 << 20) {
        snprintf(bounds, sizeof bounds, " (%s – %s)", text_size(low, number_to_u64(least)),
                 text_size(high, number_to_u64(most)));
        buf_add_str(&what, bounds);
    }
    put_text(p, STYLE_PLAIN, 3 * FIGURE_WIDTH + 4, buf_str(&what));
    page_line(p);
    buf_fini(&what);
}

/* An entry of no account: neither grew nor is large. */
static bool is_small(const json_t *e, double rss)
{
    return fabs(number(e, "growth_bytes")) < 1 << 20 && number(e, "now_bytes") < 0.02 * rss;
}

static void put_ledger_head(struct page *p, const json_t *l)
{
    char text[TEXT_MAX], from[TEXT_TIME_MAX], to[TEXT_TIME_MAX];
    double share = number(l, "named_growth_share");
    text_duration(from, number_to_u64(number(l, "start_s") * 1e9));
    text_duration(to, number_to_u64(number(l, "now_s") * 1e9));
    size_t len = (size_t)snprintf(text, sizeof text, "resident memory at %s and at %s", from, to);
    if (!isnan(share))
        snprintf(text + len, sizeof text - len, "; %.0f %% of its growth has a name", share * 100);
    put_labelled(p, "ledger", STYLE_PLAIN, text);
    snprintf(text, sizeof text, "%*s%*s%*s  what", FIGURE_WIDTH, "growth", FIGURE_WIDTH, "now",
             FIGURE_WIDTH, "start");
    page_put(p, STYLE_DIM, text);
    page_line(p);
}

static void put_ledger(struct page *p, const json_t *l, bool all)
{
    const json_t *entry;
    size_t i, shown = 0;
    double rss = number(l, "rss_now_bytes"), rest = 0;
    put_ledger_head(p, l);
    json_array_foreach(json_object_get(l, "entries"), i, entry)
    {
        if (!all && (is_small(entry, rss) || shown >= ENTRIES_MAX)) {
            rest += number(entry, "now_bytes");
            continue;
        }
        put_entry(p, entry);
        shown++;
    }
    if (rest >= 1) {
        put_size(p, STYLE_DIM, (double)NAN, false);
        put_size(p, STYLE_PLAIN, rest, false);
        put_size(p, STYLE_DIM, (double)NAN, false);
        page_put(p, STYLE_DIM, "  smaller parts (--all)");
        page_line(p);
    }
    put_size(p, STYLE_STRONG, rss - number(l, "rss_start_bytes"), true);
    put_size(p, STYLE_STRONG, rss, false);
    put_size(p, STYLE_STRONG, number(l, "rss_start_bytes"), false);
    page_put(p, STYLE_STRONG, "  RSS");
    page_line(p);
    page_line(p);
}

/* ---- hypotheses ---- */

static void put_side(struct page *p, const json_t *list, const char *sign)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        page_pad(p, EVIDENCE_INDENT - 2);
        page_put(p, STYLE_DIM, sign);
        page_pad(p, EVIDENCE_INDENT);
        put_text(p, STYLE_PLAIN, EVIDENCE_INDENT, sentence(one));
        page_line(p);
    }
}

static void put_hypothesis(struct page *p, const json_t *h, size_t place)
{
    char text[TEXT_MAX];
    bool is_strong = is_word(h, "nearly certain") || is_word(h, "likely");
    double share = number(h, "share");
    snprintf(text, sizeof text, "%zu. ", place);
    page_put(p, STYLE_DIM, text);
    put_text(p, is_strong ? STYLE_STRONG : STYLE_PLAIN, 3, string(h, "title"));
    if (share > 0 && is_strong)
        snprintf(text, sizeof text, ": %s, %.0f %% of it", string(h, "word"), share * 100);
    else
        snprintf(text, sizeof text, ": %s", string(h, "word"));
    if (p->column + cell_columns(text) > p->width) {
        page_put(p, STYLE_PLAIN, ":");
        page_line(p);
        page_pad(p, 3);
        page_put(p, STYLE_PLAIN, text + 2);
    } else {
        page_put(p, STYLE_PLAIN, text);
    }
    page_line(p);
    put_side(p, json_object_get(h, "for"), "+");
    put_side(p, json_object_get(h, "against"), "−");
    put_side(p, json_object_get(h, "absent"), "?");
    if (string(h, "decide")[0]) {
        snprintf(text, sizeof text, "would decide it: ");
        page_pad(p, EVIDENCE_INDENT);
        page_put(p, STYLE_DIM, text);
        put_text(p, STYLE_PLAIN, EVIDENCE_INDENT, string(h, "decide"));
        page_line(p);
    }
}

/* "ruled out: a, b, c" in one line each. */
static void put_others(struct page *p, const json_t *list, const char *word)
{
    struct buf text = {0};
    const json_t *h;
    size_t i;
    json_array_foreach(list, i, h)
    {
        if (!is_word(h, word))
            continue;
        buf_printf(&text, "%s%s", text.len ? "; " : "", string(h, "title"));
    }
    if (text.len) {
        page_put(p, STYLE_PLAIN, word);
        page_put(p, STYLE_PLAIN, ": ");
        put_text(p, STYLE_DIM, EVIDENCE_INDENT, buf_str(&text));
        page_line(p);
    }
    buf_fini(&text);
}

static void put_hypotheses(struct page *p, const json_t *list, bool all)
{
    static const char *const brief[] = {"unlikely", "cannot be tested", "ruled out"};
    const json_t *h;
    size_t i;
    put_labelled(p, "hypotheses", STYLE_PLAIN, "the one that explains most first");
    json_array_foreach(list, i, h)
    {
        bool is_brief = !all;
        for (size_t k = 0; is_brief && k < sizeof brief / sizeof *brief; k++)
            if (is_word(h, brief[k]))
                break;
            else if (k + 1 == sizeof brief / sizeof *brief)
                is_brief = false;
        if (!is_brief)
            put_hypothesis(p, h, i + 1);
    }
    for (size_t k = 0; !all && k < sizeof brief / sizeof *brief; k++)
        put_others(p, list, brief[k]);
    page_line(p);
}

/* ---- what to do ---- */

static void put_advice(struct page *p, const json_t *a, const char *label)
{
    struct buf text = {0};
    buf_add_str(&text, string(a, "what"));
    if (string(a, "effect")[0])
        buf_printf(&text, " – %s", string(a, "effect"));
    put_labelled(p, label, STYLE_PLAIN, buf_str(&text));
    buf_fini(&text);
}

void diagnose_text(struct buf *out, const json_t *doc, bool all, bool colour, size_t width)
{
    struct page p = {.out = out, .is_coloured = colour, .width = width ? width : WIDTH_DEFAULT};
    const json_t *one;
    size_t i;
    put_labelled(&p, "verdict", STYLE_STRONG, string(doc, "verdict"));
    page_line(&p);
    if (json_is_object(json_object_get(doc, "ledger")))
        put_ledger(&p, json_object_get(doc, "ledger"), all);
    put_hypotheses(&p, json_object_get(doc, "hypotheses"), all);
    json_array_foreach(json_object_get(doc, "advice"), i, one)
        put_advice(&p, one, i ? "" : "what to do");
    json_array_foreach(json_object_get(doc, "absent"), i, one)
        put_labelled(&p, i ? "" : "not known", STYLE_DIM, sentence(one));
}

void diagnose_summary(struct page *p, const json_t *doc)
{
    enum { ADVICE_SHOWN = 2 };
    const json_t *diagnosis = json_object_get(doc, "diagnosis"), *one;
    const json_t *first = json_array_get(json_object_get(diagnosis, "hypotheses"), 0);
    struct buf text = {0};
    size_t i;
    if (!json_is_object(first))
        return;
    buf_printf(&text, "%s: %s", string(first, "title"), string(first, "word"));
    const char *why = json_string_value(json_array_get(json_object_get(first, "for"), 0));
    if (why)
        buf_printf(&text, " (%s)", why);
    put_labelled(p, "diagnosis", STYLE_STRONG, buf_str(&text));
    buf_fini(&text);
    json_array_foreach(json_object_get(diagnosis, "advice"), i, one)
    {
        if (i < ADVICE_SHOWN)
            put_advice(p, one, i ? "" : "what to do");
    }
}
