/* Sections of the page: who allocated what lives, and what explains it. */
#include "present/report_html.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "diagnose/hypothesis.h"
#include "present/html.h"

/* ---- call sites ---- */

static void put_frame(struct buf *out, const json_t *frame)
{
    struct buf text = {0};
    report_where(&text, frame);
    html_text(out, text.data ? text.data : "", text.len);
    buf_fini(&text);
}

static void put_site_text(struct buf *out, const json_t *frame, const json_t *with)
{
    struct buf text = {0};
    report_site(&text, frame, with);
    html_text(out, text.data ? text.data : "", text.len);
    buf_fini(&text);
}

static void put_stack(struct buf *out, const json_t *stack)
{
    const json_t *frame;
    size_t i;
    buf_add_str(out, "<ol class=stack>\n");
    json_array_foreach(stack, i, frame)
    {
        const char *kind = report_string(frame, "kind");
        buf_add_str(out, kind && strcmp(kind, "python") == 0 ? "<li class=python>" : "<li>");
        put_frame(out, frame);
        buf_add_byte(out, '\n');
    }
    buf_add_str(out, "</ol>");
}

static void put_site(struct buf *out, const json_t *row)
{
    const json_t *verdict = json_object_get(row, "verdict"), *live = json_object_get(row, "live");
    const json_t *step = json_object_get(verdict, "rate_bytes_per_step");
    const json_t *stack = json_object_get(row, "stack");
    const char *word = report_string(verdict, "verdict");
    char size[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], text[96];
    buf_add_str(out, "<tr>");
    html_cell(out, true, report_signed(size, json_object_get(row, "growth_bytes")));
    html_cell(out, true, report_signed(size, json_object_get(step, "value")));
    html_cell(out, true, report_size(size, json_object_get(live, "bytes")));
    snprintf(text, sizeof text, "%s – %s", report_size(low, json_object_get(live, "low")),
             report_size(size, json_object_get(live, "high")));
    html_cell(out, true, text);
    buf_printf(out, "<td class=\"%s\">%s<td class=wide>", report_tone(verdict), word ? word : "–");
    buf_add_str(out, json_array_size(stack) ? "<details><summary><code>" : "<code>");
    put_site_text(out, json_object_get(row, "where"), row);
    buf_add_str(out, json_array_size(stack) ? "</code></summary>" : "</code>");
    if (json_array_size(stack)) {
        put_stack(out, stack);
        buf_add_str(out, "</details>");
    }
    buf_add_byte(out, '\n');
}

static void put_sites(struct buf *out, const json_t *heap)
{
    const json_t *row;
    size_t i;
    buf_add_str(out,
                "<div class=scroll role=region aria-label=\"table of call sites\" tabindex=0>\n"
                "<table>\n<thead><tr><th class=n>growth<th class=n>a step<th class=n>lives now"
                "<th class=n>within<th>verdict<th>where, with its stack\n</thead><tbody>\n");
    json_array_foreach(json_object_get(heap, "rows"), i, row) put_site(out, row);
    buf_add_str(out, "</tbody></table></div>\n");
    json_int_t more = json_integer_value(json_object_get(heap, "row_count")) - (json_int_t)i;
    if (more > 0)
        buf_printf(out, "<p class=quiet>%" JSON_INTEGER_FORMAT " more hold less.</p>\n", more);
}

void html_heap(struct buf *out, const json_t *doc)
{
    const json_t *heap = json_object_get(doc, "heap"), *live = json_object_get(heap, "live");
    const char *trouble = report_string(doc, "heap_trouble");
    char size[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    if (!json_is_object(heap) && !trouble)
        return;
    buf_add_str(out, "<section id=heap>\n<h2>Who allocated what still lives</h2>\n");
    if (!json_is_object(heap)) {
        buf_add_str(out, "<p class=quiet>");
        html_text0(out, trouble);
        buf_add_str(out, "</p>\n</section>\n");
        return;
    }
    buf_printf(out,
               "<p>Process %" JSON_INTEGER_FORMAT " holds %s (%s – %s), by samples of what it "
               "allocated.</p>\n",
               json_integer_value(json_object_get(heap, "pid")),
               report_size(size, json_object_get(live, "bytes")),
               report_size(low, json_object_get(live, "low")),
               report_size(high, json_object_get(live, "high")));
    put_sites(out, heap);
    if (json_is_object(json_object_get(heap, "tree")))
        buf_add_str(out, "<div id=flame></div>\n");
    buf_add_str(out, "</section>\n");
}

/* ---- the ledger ---- */

static double bytes_of(const json_t *entry, const char *key)
{
    double v = report_number(entry, key, 0);
    return v > 0 && isfinite(v) ? v : 0;
}

enum { KIND_COLOURS = 10, SITE_COLOURS = 6 };

static bool is_site(const json_t *entry)
{
    const json_t *site = json_object_get(entry, "site");
    return site && !json_is_null(site);
}

/* The class of entry AT: call sites are shades of one colour, every other kind has its own. */
static void colour_of(const json_t *entries, size_t at, char ret[8])
{
    unsigned sites = 0;
    for (size_t i = 0; i < at; i++)
        sites += is_site(json_array_get(entries, i));
    if (is_site(json_array_get(entries, at)))
        snprintf(ret, 8, "s%u", sites % SITE_COLOURS);
    else
        snprintf(ret, 8, "l%u", (unsigned)(at - sites) % KIND_COLOURS);
}

/* One bar: its entries side by side, RSS at full length where it is the larger of the two. */
static void put_bar(struct buf *out, const json_t *entries, const char *key, double whole,
                    const char *label)
{
    const json_t *e;
    char colour[8];
    double x = 0;
    size_t i;
    buf_printf(out,
               "<div class=bar><span>%s</span><svg viewBox=\"0 0 1000 1\" "
               "preserveAspectRatio=none aria-hidden=true>",
               label);
    json_array_foreach(entries, i, e)
    {
        double width = whole > 0 ? bytes_of(e, key) / whole * 1000 : 0;
        colour_of(entries, i, colour);
        if (width >= 0.3)
            buf_printf(out, "<rect class=%s x=\"%.1f\" width=\"%.1f\" height=\"1\"/>", colour, x,
                       width);
        x += width;
    }
    buf_add_str(out, "</svg></div>\n");
}

static void put_entry(struct buf *out, const json_t *e, const char *colour)
{
    char size[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX], text[96];
    const json_t *site = json_object_get(e, "site"), *l = json_object_get(e, "low_bytes");
    const json_t *h = json_object_get(e, "high_bytes");
    buf_printf(out, "<tr><td><span class=\"key %s\"></span>", colour);
    html_json_text(out, json_object_get(e, "kind"));
    if (json_is_object(site)) {
        buf_add_str(out, ": <code>");
        put_site_text(out, site, site);
        buf_add_str(out, "</code>");
    } else if (json_is_string(site)) {
        buf_add_str(out, ": <code>");
        html_json_text(out, site);
        buf_add_str(out, "</code>");
    }
    html_cell(out, true, report_size(size, json_object_get(e, "start_bytes")));
    html_cell(out, true, report_size(size, json_object_get(e, "now_bytes")));
    if (json_is_number(l) && json_is_number(h) && json_number_value(l) < json_number_value(h))
        snprintf(text, sizeof text, "%s – %s", report_size(low, l), report_size(high, h));
    else
        snprintf(text, sizeof text, "–");
    html_cell(out, true, text);
    html_cell(out, true, report_signed(size, json_object_get(e, "growth_bytes")));
    buf_add_byte(out, '\n');
}

static void put_ledger(struct buf *out, const json_t *ledger)
{
    const json_t *entries = json_object_get(ledger, "entries"), *e;
    double start = report_number(ledger, "rss_start_bytes", 0);
    double now = report_number(ledger, "rss_now_bytes", 0);
    double whole = now > start ? now : start;
    double share = report_number(ledger, "named_growth_share", (double)NAN);
    size_t i;
    if (!json_array_size(entries))
        return;
    buf_add_str(out, "<h3>Where its memory is</h3>\n");
    put_bar(out, entries, "start_bytes", whole, "start");
    put_bar(out, entries, "now_bytes", whole, "now");
    buf_add_str(out, "<div class=scroll role=region aria-label=\"table of the ledger\" "
                     "tabindex=0>\n<table>\n<thead><tr><th>what<th class=n>start<th class=n>now"
                     "<th class=n>within<th class=n>growth\n</thead><tbody>\n");
    json_array_foreach(entries, i, e)
    {
        char colour[8];
        colour_of(entries, i, colour);
        put_entry(out, e, colour);
    }
    buf_add_str(out, "</tbody></table></div>\n");
    if (isfinite(share))
        buf_printf(out, "<p class=quiet>%.0f %% of the growth has a name.</p>\n", share * 100);
}

/* ---- hypotheses and advice ---- */

/* Sentences, as strings or as objects with "text". */
static void put_sentences(struct buf *out, const char *label, const char *style, const json_t *list)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        const json_t *text = json_is_object(one) ? json_object_get(one, "text") : one;
        buf_printf(out, "<li class=\"%s\"><b>%s</b> ", style, label);
        html_json_text(out, text);
        buf_add_byte(out, '\n');
    }
}

static void put_hypothesis(struct buf *out, const json_t *h, bool is_open)
{
    const char *decide = report_string(h, "decide");
    buf_printf(out, "<details class=hypothesis%s><summary><span class=word>",
               is_open ? " open" : "");
    html_json_text(out, json_object_get(h, "word"));
    buf_add_str(out, "</span> ");
    html_json_text(out, json_object_get(h, "title"));
    buf_add_str(out, "</summary><ul>\n");
    put_sentences(out, "for", "for", json_object_get(h, "for"));
    put_sentences(out, "against", "against", json_object_get(h, "against"));
    put_sentences(out, "not measured", "absent", json_object_get(h, "absent"));
    if (decide && *decide) {
        buf_add_str(out, "<li class=decide><b>to decide it</b> ");
        html_text0(out, decide);
        buf_add_byte(out, '\n');
    }
    buf_add_str(out, "</ul></details>\n");
}

static bool is_word(const json_t *h, enum hypothesis_word word)
{
    const char *text = report_string(h, "word");
    return text && strcmp(text, hypothesis_words[word]) == 0;
}

/* Those of one word, folded up: nobody reads twenty that are ruled out, but each can be looked up.
 */
static void put_group(struct buf *out, const json_t *list, enum hypothesis_word word)
{
    const json_t *h;
    size_t i, count = 0;
    json_array_foreach(list, i, h) count += is_word(h, word);
    if (!count)
        return;
    buf_printf(out, "<details class=group><summary>%zu %s</summary>\n", count,
               hypothesis_words[word]);
    json_array_foreach(list, i, h)
    {
        if (is_word(h, word))
            put_hypothesis(out, h, false);
    }
    buf_add_str(out, "</details>\n");
}

static void put_advice(struct buf *out, const json_t *list)
{
    const json_t *one;
    size_t i;
    if (!json_array_size(list))
        return;
    buf_add_str(out, "<h3>What to do</h3>\n<ol class=advice>\n");
    json_array_foreach(list, i, one)
    {
        const char *effect = report_string(one, "effect");
        buf_add_str(out, "<li>");
        html_json_text(out, json_object_get(one, "what"));
        if (effect && *effect) {
            buf_add_str(out, " <em>");
            html_text0(out, effect);
            buf_add_str(out, "</em>");
        }
        buf_add_byte(out, '\n');
    }
    buf_add_str(out, "</ol>\n");
}

void html_diagnosis(struct buf *out, const json_t *doc)
{
    const json_t *d = json_object_get(doc, "diagnosis"), *h;
    size_t i;
    if (!json_is_object(d))
        return;
    buf_add_str(out, "<section id=diagnosis>\n<h2>Diagnosis</h2>\n");
    put_advice(out, json_object_get(d, "advice"));
    put_ledger(out, json_object_get(d, "ledger"));
    buf_add_str(out, "<h3>Every explanation, tested</h3>\n");
    json_array_foreach(json_object_get(d, "hypotheses"), i, h)
    {
        if (!is_word(h, CANNOT_TEST) && !is_word(h, RULED_OUT))
            put_hypothesis(out, h, i == 0);
    }
    put_group(out, json_object_get(d, "hypotheses"), CANNOT_TEST);
    put_group(out, json_object_get(d, "hypotheses"), RULED_OUT);
    buf_add_str(out, "</section>\n");
}
