/* Two runs side by side: as a page, for a terminal, as Markdown. */
#include "present/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "present/html.h"
#include "present/report_html.h"
#include "present/report_terminal.h"

/* ---- what is put side by side ---- */

enum { ROW_MAX = 96 };
struct row {
    const char *what;
    char before[ROW_MAX], after[ROW_MAX];
};
enum { ROWS = 9 };

static void rate_text(char out[ROW_MAX], const json_t *rate)
{
    char value[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    if (json_is_object(rate))
        snprintf(out, ROW_MAX, "%s (%s to %s)",
                 report_signed(value, json_object_get(rate, "value")),
                 report_signed(low, json_object_get(rate, "low")),
                 report_signed(high, json_object_get(rate, "high")));
    else
        snprintf(out, ROW_MAX, "–");
}

static void count_text(char out[ROW_MAX], const json_t *count)
{
    if (json_integer_value(count) > 0)
        snprintf(out, ROW_MAX, "%" JSON_INTEGER_FORMAT, json_integer_value(count));
    else
        snprintf(out, ROW_MAX, "–");
}

/* One side's cells, in the order of the titles in rows_of. */
static void fill(const json_t *side, char cells[ROWS][ROW_MAX])
{
    char size[TEXT_SIZE_MAX], time[TEXT_TIME_MAX];
    const json_t *floor = json_object_get(side, "floor_bytes");
    const char *word = report_string(side, "verdict");
    double sure = report_number(side, "confidence", -1);
    snprintf(cells[0], ROW_MAX, "%s", word ? word : "–");
    if (sure >= 0)
        snprintf(cells[1], ROW_MAX, "%.0f %%", sure * 100);
    else
        snprintf(cells[1], ROW_MAX, "–");
    rate_text(cells[2], json_object_get(side, "rate_bytes_per_step"));
    rate_text(cells[3], json_object_get(side, "rate_bytes_per_min"));
    snprintf(cells[4], ROW_MAX, "%s", report_size(size, json_object_get(floor, "first")));
    snprintf(cells[5], ROW_MAX, "%s", report_size(size, json_object_get(floor, "last")));
    snprintf(cells[6], ROW_MAX, "%s", report_size(size, json_object_get(side, "peak_bytes")));
    count_text(cells[7], json_object_get(side, "steps_seen"));
    snprintf(cells[8], ROW_MAX, "%s", report_time(time, report_number(side, "span_s", -1)));
}

static void rows_of(const json_t *compared, struct row rows[ROWS])
{
    static const char *const titles[ROWS] = {
        "verdict", "confidence", "growth a step", "growth a minute", "floor, first", "floor, last",
        "peak",    "steps",      "time"};
    char before[ROWS][ROW_MAX], after[ROWS][ROW_MAX];
    fill(json_object_get(compared, "before"), before);
    fill(json_object_get(compared, "after"), after);
    for (size_t i = 0; i < ROWS; i++) {
        rows[i].what = titles[i];
        memcpy(rows[i].before, before[i], ROW_MAX);
        memcpy(rows[i].after, after[i], ROW_MAX);
    }
}

static const json_t *job_series(const json_t *doc)
{
    const json_t *list = json_object_get(json_object_get(doc, "data"), "series"), *one;
    size_t i;
    json_array_foreach(list, i, one)
    {
        const char *of = report_string(one, "of");
        if (of && strcmp(of, "job") == 0)
            return one;
    }
    return NULL;
}

/* A folder's last name tells the runs apart where both have one title. */
static const char *name_of(const json_t *doc)
{
    const char *path = report_string(doc, "path"), *slash;
    if (!path)
        return "a run";
    slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

/* ---- the page ---- */

static void put_sites(struct buf *out, const json_t *list)
{
    const json_t *site;
    size_t i;
    if (!json_array_size(list))
        return;
    buf_add_str(out, "<section id=sites>\n<h2>Call sites of the first run</h2>\n"
                     "<div class=scroll role=region aria-label=\"table of call sites\" tabindex=0>"
                     "\n<table>\n<thead><tr><th class=n>growth before<th class=n>after"
                     "<th class=n>a step before<th class=n>after"
                     "<th>where\n</thead><tbody>\n");
    json_array_foreach(list, i, site)
    {
        struct buf where = {0};
        char size[TEXT_SIZE_MAX];
        const json_t *a = json_object_get(site, "before_rate_bytes_per_step");
        const json_t *b = json_object_get(site, "after_rate_bytes_per_step");
        report_site(&where, json_object_get(site, "where"), site);
        buf_add_str(out, "<tr>");
        html_cell(out, true, report_signed(size, json_object_get(site, "before_growth_bytes")));
        html_cell(out, true, report_signed(size, json_object_get(site, "after_growth_bytes")));
        html_cell(out, true, report_signed(size, json_object_get(a, "value")));
        html_cell(out, true, report_signed(size, json_object_get(b, "value")));
        buf_add_str(out, "<td class=wide><code>");
        html_text0(out, buf_str(&where));
        buf_add_str(out, "</code>\n");
        buf_fini(&where);
    }
    buf_add_str(out, "</tbody></table></div>\n"
                     "<p class=quiet>A dash: nothing of that place was sampled alive.</p>\n"
                     "</section>\n");
}

static void put_answer(struct buf *out, const json_t *compared)
{
    const char *answer = report_string(compared, "answer");
    const char *tone = strcmp(answer, "fixed") == 0                                  ? "good"
                       : strcmp(answer, "worse") == 0 || strcmp(answer, "less") == 0 ? "bad"
                                                                                     : "open";
    const json_t *reason;
    size_t i;
    buf_printf(out, "<section id=verdict class=\"verdict %s\">\n<p class=headline>", tone);
    html_json_text(out, json_object_get(compared, "sentence"));
    buf_add_str(out, "</p>\n<ul class=evidence>\n");
    json_array_foreach(json_object_get(compared, "reasons"), i, reason)
    {
        buf_add_str(out, "<li>");
        html_json_text(out, reason);
        buf_add_byte(out, '\n');
    }
    buf_add_str(out, "</ul>\n</section>\n");
}

static void put_side_by_side(struct buf *out, const json_t *compared, const json_t *before,
                             const json_t *after)
{
    struct row rows[ROWS];
    rows_of(compared, rows);
    buf_add_str(out, "<section id=both>\n<h2>Side by side</h2>\n"
                     "<div class=scroll role=region aria-label=\"the two runs\" tabindex=0>\n"
                     "<table>\n<thead><tr><th><th class=n>before: ");
    html_text0(out, name_of(before));
    buf_add_str(out, "<th class=n>after: ");
    html_text0(out, name_of(after));
    buf_add_str(out, "\n</thead><tbody>\n");
    for (size_t i = 0; i < ROWS; i++) {
        buf_printf(out, "<tr><th scope=row>%s", rows[i].what);
        html_cell(out, true, rows[i].before);
        html_cell(out, true, rows[i].after);
        buf_add_byte(out, '\n');
    }
    buf_add_str(out, "</tbody></table></div>\n</section>\n");
}

int report_compare_html(struct buf *out, const json_t *compared, const json_t *before,
                        const json_t *after, const char *nonce)
{
    json_t *packed = json_pack("{s:[o,o]}", "runs", report_pack(before), report_pack(after));
    if (!packed)
        return -ENOMEM;
    int r = html_begin(out, "two runs", nonce);
    buf_add_str(out, "<header>\n<h1>Before and after</h1>\n<p class=when>");
    html_text0(out, name_of(before));
    buf_add_str(out, " → ");
    html_text0(out, name_of(after));
    buf_add_str(out, "</p>\n</header>\n<main>\n");
    put_answer(out, compared);
    html_plots(out, "Memory of both jobs", report_has_steps(before) && report_has_steps(after));
    put_side_by_side(out, compared, before, after);
    put_sites(out, json_object_get(compared, "sites"));
    html_footer(out, after);
    if (r == 0)
        r = html_end(out, packed, nonce);
    json_decref(packed);
    return r < 0 ? r : out->failed ? -ENOMEM : 0;
}

/* ---- for a terminal ---- */

void report_compare_text(struct buf *out, const json_t *compared, const json_t *before,
                         const json_t *after, bool colour, size_t width)
{
    struct page p = {.out = out, .is_coloured = colour, .width = width ? width : 80};
    struct row rows[ROWS];
    const json_t *reason;
    size_t i;
    report_sentence(&p, "answer", STYLE_STRONG, report_string(compared, "sentence"));
    json_array_foreach(json_object_get(compared, "reasons"), i, reason)
        report_sentence(&p, "", STYLE_PLAIN, json_string_value(reason));
    page_line(&p);
    rows_of(compared, rows);
    page_pad(&p, 17);
    page_put(&p, STYLE_DIM, "BEFORE");
    page_pad(&p, 52);
    page_put(&p, STYLE_DIM, "AFTER");
    page_line(&p);
    for (i = 0; i < ROWS; i++) {
        page_put(&p, STYLE_DIM, rows[i].what);
        page_pad(&p, 17);
        page_put(&p, STYLE_PLAIN, rows[i].before);
        page_pad(&p, p.column < 50 ? 52 : p.column + 2);
        page_put(&p, STYLE_PLAIN, rows[i].after);
        page_line(&p);
    }
    page_line(&p);
    double most = fmax(report_most(job_series(before)), report_most(job_series(after)));
    report_plot_text(&p, json_object_get(before, "data"), job_series(before), "before", most);
    report_plot_text(&p, json_object_get(after, "data"), job_series(after), "after", most);
}

void report_compare_markdown(struct buf *out, const json_t *compared)
{
    struct row rows[ROWS];
    const json_t *reason;
    size_t i;
    rows_of(compared, rows);
    buf_printf(out, "## %s\n\n", report_string(compared, "sentence"));
    json_array_foreach(json_object_get(compared, "reasons"), i, reason)
        buf_printf(out, "- %s\n", json_string_value(reason));
    buf_add_str(out, "\n| | before | after |\n|---|---|---|\n");
    for (i = 0; i < ROWS; i++)
        buf_printf(out, "| %s | %s | %s |\n", rows[i].what, rows[i].before, rows[i].after);
}
