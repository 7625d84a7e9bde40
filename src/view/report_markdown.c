/* A report as Markdown: what the maintainers of a library need to believe it and to find it. */
#include "view/report.h"

#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "view/report_html.h"

enum { ROWS = 8, FRAMES = 24 };

/* Raw text as one line of Markdown that is nothing but text: no code, no table, no HTML, no link.
 */
static void put_plain(struct buf *out, const char *raw)
{
    struct buf text = {0};
    text_escape(&text, raw, strlen(raw));
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '<' || c == '>' || c == '&')
            buf_add_str(out, c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;");
        else if (strchr("|*_[]#`~!@", c)) /* @ would call somebody */
            buf_printf(out, "&#%d;", c);
        else
            buf_add(out, &c, 1);
    }
    buf_fini(&text);
}

/* The same inside of a code block, whose fence no text of ours can close. */
static void put_code(struct buf *out, const char *raw)
{
    struct buf text = {0};
    text_escape(&text, raw, strlen(raw));
    for (size_t i = 0; i < text.len; i++)
        buf_add_byte(out, (uint8_t)(text.data[i] == '`' ? '\'' : text.data[i]));
    buf_fini(&text);
}

static void put_versions(struct buf *out, const json_t *doc)
{
    const json_t *run = json_object_get(doc, "run"), *heap = json_object_get(doc, "heap");
    json_t *versions = json_object_get(json_object_get(doc, "data"), "versions"), *v;
    const json_t *from = json_is_object(run) ? run : json_object_get(doc, "header");
    const char *python =
        report_string(json_object_get(json_object_get(heap, "cost"), "python"), "version");
    const char *key;
    buf_add_str(out, "\n### Versions\n\n| what | version |\n|---|---|\n");
    if (python && !json_object_get(versions, "python")) {
        buf_add_str(out, "| Python | ");
        put_plain(out, python);
        buf_add_str(out, " |\n");
    }
    json_object_foreach(versions, key, v)
    {
        buf_add_str(out, "| ");
        put_plain(out, key);
        buf_add_str(out, " | ");
        put_plain(out, json_string_value(v) ? json_string_value(v) : "");
        buf_add_str(out, " |\n");
    }
    buf_add_str(out, "| Linux | ");
    put_plain(out, report_string(from, "kernel") ? report_string(from, "kernel") : "not recorded");
    buf_add_str(out, " |\n| ebb | ");
    put_plain(out, report_string(from, "ebb") ? report_string(from, "ebb") : "not recorded");
    buf_add_str(out, " |\n");
}

static void put_rate(struct buf *out, const char *what, const json_t *rate)
{
    char value[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    if (json_is_object(rate))
        buf_printf(out, "| %s | %s (%s to %s) |\n", what,
                   report_signed(value, json_object_get(rate, "value")),
                   report_signed(low, json_object_get(rate, "low")),
                   report_signed(high, json_object_get(rate, "high")));
}

static void put_figures(struct buf *out, const json_t *doc)
{
    const json_t *tree = report_tree(doc), *data = json_object_get(doc, "data");
    const json_t *floor = json_object_get(tree, "floor_bytes");
    char a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX], peak[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    buf_add_str(out, "\n| measured | |\n|---|---|\n");
    buf_printf(out, "| time | %s |\n", report_time(time, report_number(data, "span_s", -1)));
    if (json_integer_value(json_object_get(data, "steps_seen")) > 0)
        buf_printf(out, "| steps | %" JSON_INTEGER_FORMAT " |\n",
                   json_integer_value(json_object_get(data, "steps_seen")));
    buf_printf(out, "| lowest level, first to last | %s → %s |\n| peak | %s |\n",
               report_size(a, json_object_get(floor, "first")),
               report_size(b, json_object_get(floor, "last")), report_size(peak, report_peak(doc)));
    put_rate(out, "growth a step", json_object_get(tree, "rate_bytes_per_step"));
    put_rate(out, "growth a minute", json_object_get(tree, "rate_bytes_per_min"));
}

static void put_evidence(struct buf *out, const json_t *list)
{
    const json_t *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        const char *text =
            json_string_value(json_is_object(one) ? json_object_get(one, "text") : one);
        if (!text)
            continue;
        buf_add_str(out, "- ");
        put_plain(out, text);
        buf_add_byte(out, '\n');
    }
}

static void put_stack(struct buf *out, const json_t *row)
{
    const json_t *frame;
    struct buf text = {0};
    size_t i;
    if (!json_array_size(json_object_get(row, "stack")))
        return;
    buf_add_str(out, "\nIts stack, innermost first:\n\n```\n");
    json_array_foreach(json_object_get(row, "stack"), i, frame)
    {
        if (i == FRAMES) {
            buf_add_str(out, "…\n");
            break;
        }
        buf_clear(&text);
        report_where(&text, frame);
        put_code(out, buf_str(&text));
        buf_add_byte(out, '\n');
    }
    buf_add_str(out, "```\n");
    buf_fini(&text);
}

static void put_sites(struct buf *out, const json_t *heap)
{
    const json_t *rows = json_object_get(heap, "rows"), *row;
    struct buf text = {0};
    size_t i;
    if (!json_array_size(rows))
        return;
    buf_add_str(out,
                "\n### Who allocated what still lives\n\nBy sampled allocations.\n\n"
                "| growth | a step | lives now | verdict | where |\n|---:|---:|---:|---|---|\n");
    json_array_foreach(rows, i, row)
    {
        const json_t *v = json_object_get(row, "verdict");
        const json_t *rate = json_object_get(v, "rate_bytes_per_step");
        char a[TEXT_SIZE_MAX], b[TEXT_SIZE_MAX], c[TEXT_SIZE_MAX];
        if (i == ROWS)
            break;
        buf_clear(&text);
        report_where(&text, json_object_get(row, "where"));
        buf_printf(out, "| %s | %s | %s | %s | ",
                   report_signed(a, json_object_get(row, "growth_bytes")),
                   report_signed(b, json_object_get(rate, "value")),
                   report_size(c, json_object_get(json_object_get(row, "live"), "bytes")),
                   report_string(v, "verdict") ? report_string(v, "verdict") : "–");
        put_plain(out, buf_str(&text));
        buf_add_str(out, " |\n");
    }
    buf_fini(&text);
    put_stack(out, json_array_get(rows, 0));
}

static void put_diagnosis(struct buf *out, const json_t *doc)
{
    const json_t *d = json_object_get(doc, "diagnosis");
    const json_t *first = json_array_get(json_object_get(d, "hypotheses"), 0);
    const char *title = report_string(first, "title"), *word = report_string(first, "word");
    if (!title)
        return;
    buf_add_str(out, "\n### What explains it best\n\n");
    put_plain(out, title);
    buf_add_str(out, " (");
    put_plain(out, word ? word : "possible");
    buf_add_str(out, ")\n\n");
    put_evidence(out, json_object_get(first, "for"));
    if (json_array_size(json_object_get(first, "against"))) {
        buf_add_str(out, "\nAgainst it:\n\n");
        put_evidence(out, json_object_get(first, "against"));
    }
}

static void put_command(struct buf *out, const json_t *run)
{
    const json_t *word;
    size_t i;
    if (!json_array_size(json_object_get(run, "command")))
        return;
    buf_add_str(out, "\n```\n");
    json_array_foreach(json_object_get(run, "command"), i, word)
    {
        if (i)
            buf_add_byte(out, ' ');
        put_code(out, json_string_value(word) ? json_string_value(word) : "");
    }
    buf_add_str(out, "\n```\n");
}

void report_markdown(struct buf *out, const json_t *doc)
{
    struct buf headline = {0};
    const json_t *trouble = json_object_get(doc, "trouble");
    report_headline(&headline, doc);
    buf_add_str(out, "## Memory: ");
    put_plain(out, buf_str(&headline));
    buf_fini(&headline);
    buf_add_byte(out, '\n');
    put_command(out, json_object_get(doc, "run"));
    put_figures(out, doc);
    buf_add_str(out, "\n### Evidence\n\n");
    put_evidence(out, json_object_get(report_tree(doc), "evidence"));
    put_diagnosis(out, doc);
    put_sites(out, json_object_get(doc, "heap"));
    put_versions(out, doc);
    if (json_array_size(trouble)) {
        buf_add_str(out, "\nNot everything could be read:\n\n");
        put_evidence(out, trouble);
    }
}
