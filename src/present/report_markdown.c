/* A report as Markdown: what the maintainers of a library need to believe it and to find it. */
#include "present/report.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "diagnose/hypothesis.h"
#include "present/markdown.h"
#include "present/report_html.h"

enum { ROWS = 8, FRAMES = 24 };

/* What is written, and the folder that its author worked in. */
struct paper {
    struct buf *out;
    const char *cwd;
};

typedef void put_fn(struct buf *out, const char *raw);

/* RAW in the way of PUT, without its author's folders. */
static void put(const struct paper *p, put_fn *as, const char *raw)
{
    struct buf text = {0};
    if (!raw)
        return;
    markdown_paths(&text, raw, p->cwd);
    as(p->out, buf_str(&text));
    buf_fini(&text);
}

static void put_frame(const struct paper *p, put_fn *as, const json_t *frame)
{
    struct buf text = {0};
    report_where(&text, frame);
    put(p, as, buf_str(&text));
    buf_fini(&text);
}

static void put_site(const struct paper *p, const json_t *frame, const json_t *with)
{
    struct buf text = {0};
    report_site(&text, frame, with);
    put(p, markdown_code, buf_str(&text));
    buf_fini(&text);
}

static void put_row(const struct paper *p, const char *name, const char *value)
{
    if (!value || !*value)
        return;
    buf_add_str(p->out, "| ");
    put(p, markdown_text, name);
    buf_add_str(p->out, " | ");
    put(p, markdown_text, value);
    buf_add_str(p->out, " |\n");
}

static void put_list(const struct paper *p, const json_t *list)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        const char *text =
            json_string_value(json_is_object(one) ? json_object_get(one, "text") : one);
        if (!text)
            continue;
        buf_add_str(p->out, "- ");
        put(p, markdown_text, text);
        buf_add_byte(p->out, '\n');
    }
}

/* ---- what happened ---- */

static void put_verdict(const struct paper *p, const json_t *doc)
{
    const json_t *tree = report_tree(doc);
    const char *word = report_string(tree, "verdict");
    struct buf text = {0};
    if (tree)
        report_headline(&text, doc);
    else
        buf_add_str(&text, "there are no readings");
    buf_add_str(p->out, "## Memory: ");
    put(p, markdown_text, word ? word : "undecided");
    buf_add_str(p->out, "\n\n");
    put(p, markdown_text, buf_str(&text));
    buf_add_str(p->out, "\n");
    buf_fini(&text);
}

/* Where the program lies is its author's own: its name is enough. */
static void put_command(const struct paper *p, const json_t *run)
{
    const json_t *word;
    size_t i;
    if (!json_array_size(json_object_get(run, "command")))
        return;
    buf_add_str(p->out, "\n```\n");
    json_array_foreach(json_object_get(run, "command"), i, word)
    {
        const char *text = json_string_value(word);
        const char *slash = text && i == 0 ? strrchr(text, '/') : NULL;
        if (i)
            buf_add_byte(p->out, ' ');
        put(p, markdown_fenced, slash && slash[1] ? slash + 1 : text);
    }
    buf_add_str(p->out, "\n```\n");
}

static void put_rate(const struct paper *p, const char *what, const json_t *rate)
{
    char value[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    if (json_is_object(rate))
        buf_printf(p->out, "| %s | %s (%s to %s) |\n", what,
                   report_signed(value, json_object_get(rate, "value")),
                   report_signed(low, json_object_get(rate, "low")),
                   report_signed(high, json_object_get(rate, "high")));
}

static void put_figures(const struct paper *p, const json_t *doc)
{
    const json_t *tree = report_tree(doc), *data = json_object_get(doc, "data");
    const json_t *floor = json_object_get(tree, "floor_bytes");
    const json_t *limit = json_object_get(json_object_get(doc, "run"), "limit");
    json_int_t steps = json_integer_value(json_object_get(data, "steps_seen"));
    char a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX], peak[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    buf_add_str(p->out, "\n| measured | |\n|---|---|\n");
    buf_printf(p->out, "| time | %s |\n", report_time(time, report_number(data, "span_s", -1)));
    if (steps > 0)
        buf_printf(p->out, "| steps | %" JSON_INTEGER_FORMAT " |\n", steps);
    buf_printf(p->out, "| lowest level, first to last | %s → %s |\n| peak | %s |\n",
               report_size(a, json_object_get(floor, "first")),
               report_size(b, json_object_get(floor, "last")), report_size(peak, report_peak(doc)));
    put_rate(p, "growth a step", json_object_get(tree, "rate_bytes_per_step"));
    put_rate(p, "growth a minute", json_object_get(tree, "rate_bytes_per_min"));
    if (json_is_number(json_object_get(limit, "limit_bytes")))
        buf_printf(p->out, "| limit | %s |\n",
                   report_size(a, json_object_get(limit, "limit_bytes")));
}

/* ---- why ---- */

static void put_ledger(const struct paper *p, const json_t *ledger)
{
    const json_t *entries = json_object_get(ledger, "entries"), *e;
    size_t i;
    if (!json_array_size(entries))
        return;
    buf_add_str(p->out, "\n### Where its memory is\n\n| what | start | now | growth |\n"
                        "|---|---:|---:|---:|\n");
    json_array_foreach(entries, i, e)
    {
        const json_t *site = json_object_get(e, "site");
        char start[TEXT_SIZE_MAX], now[TEXT_SIZE_MAX], growth[TEXT_SIZE_MAX];
        if (i == ROWS)
            break;
        buf_add_str(p->out, "| ");
        put(p, markdown_text, report_string(e, "kind"));
        if (json_is_object(site) || json_is_string(site))
            buf_add_str(p->out, ": ");
        if (json_is_object(site))
            put_site(p, site, site);
        else
            put(p, markdown_code, json_string_value(site));
        buf_printf(p->out, " | %s | %s | %s |\n",
                   report_size(start, json_object_get(e, "start_bytes")),
                   report_size(now, json_object_get(e, "now_bytes")),
                   report_signed(growth, json_object_get(e, "growth_bytes")));
    }
}

/* Each with the first that speaks against it: nobody need ask for them again. */
static void put_ruled_out(const struct paper *p, const json_t *list)
{
    const json_t *h;
    bool is_first = true;
    size_t i;
    json_array_foreach(list, i, h)
    {
        const json_t *why = json_array_get(json_object_get(h, "against"), 0);
        const char *word = report_string(h, "word");
        const char *text =
            json_is_object(why) ? report_string(why, "text") : json_string_value(why);
        if (!word || strcmp(word, hypothesis_words[RULED_OUT]) != 0 || !text)
            continue;
        buf_add_str(p->out, is_first ? "\nRuled out:\n\n- " : "- ");
        is_first = false;
        put(p, markdown_text, report_string(h, "title"));
        buf_add_str(p->out, ": ");
        put(p, markdown_text, text);
        buf_add_byte(p->out, '\n');
    }
}

static void put_diagnosis(const struct paper *p, const json_t *doc)
{
    const json_t *d = json_object_get(doc, "diagnosis"), *list = json_object_get(d, "hypotheses");
    const json_t *first = json_array_get(list, 0);
    const char *title = report_string(first, "title"), *word = report_string(first, "word");
    if (!title)
        return;
    buf_add_str(p->out, "\n### What explains it best\n\n");
    put(p, markdown_text, title);
    buf_add_str(p->out, " (");
    put(p, markdown_text, word ? word : "possible");
    buf_add_str(p->out, ")\n\n");
    put_list(p, json_object_get(first, "for"));
    if (json_array_size(json_object_get(first, "against"))) {
        buf_add_str(p->out, "\nAgainst it:\n\n");
        put_list(p, json_object_get(first, "against"));
    }
    put_ruled_out(p, list);
    put_ledger(p, json_object_get(d, "ledger"));
}

static void put_stack(const struct paper *p, const json_t *row)
{
    const json_t *frame;
    size_t i;
    if (!json_array_size(json_object_get(row, "stack")))
        return;
    buf_add_str(p->out, "\nThe stack of the first, innermost on top:\n\n```\n");
    json_array_foreach(json_object_get(row, "stack"), i, frame)
    {
        if (i == FRAMES) {
            buf_add_str(p->out, "…\n");
            break;
        }
        put_frame(p, markdown_fenced, frame);
        buf_add_byte(p->out, '\n');
    }
    buf_add_str(p->out, "```\n");
}

static void put_sites(const struct paper *p, const json_t *heap)
{
    const json_t *rows = json_object_get(heap, "rows"), *row;
    size_t i;
    if (!json_array_size(rows))
        return;
    buf_add_str(p->out,
                "\n### Who allocated what still lives\n\nBy sampled allocations.\n\n"
                "| growth | a step | lives now | verdict | where |\n|---:|---:|---:|---|---|\n");
    json_array_foreach(rows, i, row)
    {
        const json_t *v = json_object_get(row, "verdict");
        const json_t *rate = json_object_get(v, "rate_bytes_per_step");
        char a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX], c[TEXT_SIZE_MAX];
        if (i == ROWS)
            break;
        buf_printf(p->out, "| %s | %s | %s | %s | ",
                   report_signed(a, json_object_get(row, "growth_bytes")),
                   report_signed(b, json_object_get(rate, "value")),
                   report_size(c, json_object_get(json_object_get(row, "live"), "bytes")),
                   report_string(v, "verdict") ? report_string(v, "verdict") : "–");
        put_site(p, json_object_get(row, "where"), row);
        buf_add_str(p->out, " |\n");
    }
    put_stack(p, json_array_get(rows, 0));
}

/* ---- of what ---- */

static void put_versions(const struct paper *p, const json_t *doc)
{
    const json_t *run = json_object_get(doc, "run"), *header = json_object_get(doc, "header");
    const json_t *cost = json_object_get(json_object_get(doc, "heap"), "cost");
    const json_t *from = json_is_object(run) ? run : header, *gpu;
    json_t *versions = json_object_get(json_object_get(doc, "data"), "versions"), *v;
    const char *key;
    size_t i;
    buf_add_str(p->out, "\n### Versions\n\n| what | version |\n|---|---|\n");
    if (!json_object_get(versions, "python"))
        put_row(p, "python", report_string(json_object_get(cost, "python"), "version"));
    json_object_foreach(versions, key, v) put_row(p, key, json_string_value(v));
    put_row(p, "Linux", report_string(from, "kernel"));
    put_row(p, "architecture", report_string(header, "arch"));
    json_array_foreach(json_object_get(run, "gpus"), i, gpu)
        put_row(p, "GPU", report_string(gpu, "name"));
    put_row(p, "ebb", report_string(from, "ebb") ? report_string(from, "ebb") : "not recorded");
}

void report_markdown(struct buf *out, const json_t *doc)
{
    const json_t *run = json_object_get(doc, "run"), *trouble = json_object_get(doc, "trouble");
    const struct paper p = {
        out, report_string(json_is_object(run) ? run : json_object_get(doc, "header"), "cwd")};
    put_verdict(&p, doc);
    put_command(&p, run);
    put_figures(&p, doc);
    if (json_array_size(json_object_get(report_tree(doc), "evidence"))) {
        buf_add_str(out, "\n### Evidence\n\n");
        put_list(&p, json_object_get(report_tree(doc), "evidence"));
    }
    put_diagnosis(&p, doc);
    put_sites(&p, json_object_get(doc, "heap"));
    put_versions(&p, doc);
    if (json_array_size(trouble)) {
        buf_add_str(out, "\nNot everything could be read:\n\n");
        put_list(&p, trouble);
    }
}
