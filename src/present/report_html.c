/* The page of a report: what is said first, and how the page begins and ends. */
#include "present/report_html.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "present/assets.h"
#include "present/html.h"
#include "present/report.h"

/* ---- elements ---- */

void html_cell(struct buf *out, bool is_number, const char *text)
{
    buf_add_str(out, is_number ? "<td class=n>" : "<td>");
    html_text0(out, text);
}

void html_cell_json(struct buf *out, const json_t *text)
{
    buf_add_str(out, "<td>");
    html_json_text(out, text);
}

void html_command(struct buf *out, const json_t *words)
{
    const json_t *word;
    size_t i;
    buf_add_str(out, "<code>");
    json_array_foreach(words, i, word)
    {
        if (i)
            buf_add_byte(out, ' ');
        html_json_text(out, word);
    }
    buf_add_str(out, "</code>");
}

void html_fact(struct buf *out, const char *name, const char *text)
{
    if (!text || !*text || strcmp(text, "–") == 0)
        return;
    buf_printf(out, "<div><dt>%s<dd>", name);
    html_text0(out, text);
    buf_add_str(out, "</div>\n");
}

int html_begin(struct buf *out, const char *title, const char *nonce)
{
    buf_printf(out,
               "<!doctype html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
               "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; "
               "script-src 'nonce-%s'; style-src 'nonce-%s'; img-src data:; base-uri 'none'; "
               "form-action 'none'\">\n"
               "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
               "<meta name=color-scheme content=\"light dark\">\n"
               "<meta name=referrer content=no-referrer>\n"
               "<link rel=icon href=\"data:,\">\n<title>",
               nonce, nonce);
    html_text0(out, title);
    buf_printf(out, " · ebb</title>\n<style nonce=%s>", nonce);
    int r = asset_unpack(ASSET_REPORT_CSS, out);
    buf_add_str(out, "</style>\n</head>\n<body>\n");
    return r;
}

void html_footer(struct buf *out, const json_t *doc)
{
    buf_add_str(out, "</main>\n<footer>made by ebb ");
    html_json_text(out, json_object_get(doc, "ebb"));
    buf_add_str(out, ", ");
    html_json_text(out, json_object_get(doc, "made"));
    buf_add_str(out, "</footer>\n");
}

int html_end(struct buf *out, const json_t *data, const char *nonce)
{
    struct buf js = {0};
    int r = asset_unpack(ASSET_REPORT_JS, &js);
    if (r == 0 && js.len && data) {
        buf_add_str(out, "<script type=\"application/json\" id=data>");
        r = html_json(out, data);
        buf_printf(out, "</script>\n<script nonce=%s>", nonce);
        buf_add(out, js.data, js.len);
        buf_add_str(out, "</script>\n");
    }
    buf_fini(&js);
    buf_add_str(out, "</body>\n</html>\n");
    return r;
}

static bool has_plots(void)
{
    struct buf js = {0};
    bool has = asset_unpack(ASSET_REPORT_JS, &js) == 0 && js.len > 0;
    buf_fini(&js);
    return has;
}

/* ---- what is said first ---- */

static void put_command(struct buf *out, const json_t *run)
{
    if (!json_array_size(json_object_get(run, "command")))
        return;
    buf_add_str(out, "<p class=command>");
    html_command(out, json_object_get(run, "command"));
    buf_add_str(out, "</p>\n");
}

static void put_when(struct buf *out, const json_t *doc)
{
    const json_t *run = json_object_get(doc, "run"), *end = json_object_get(run, "end");
    char time[TEXT_TIME_MAX];
    double span =
        report_number(run, "duration_s", report_number(json_object_get(doc, "data"), "span_s", -1));
    const char *state = report_string(run, "state");
    buf_add_str(out, "<p class=when>");
    if (report_string(run, "started")) {
        html_json_text(out, json_object_get(run, "started"));
        buf_add_str(out, " · ");
    }
    if (report_string(run, "host")) {
        html_json_text(out, json_object_get(run, "host"));
        buf_add_str(out, " · ");
    }
    buf_printf(out, "%s", report_time(time, span));
    if (state && strcmp(state, "running") == 0)
        buf_add_str(out, " · still running, or never finished, when this was made");
    if (report_string(end, "cause")) {
        buf_add_str(out, " · ");
        html_json_text(out, json_object_get(end, "cause"));
    }
    buf_add_str(out, "</p>\n");
}

static void put_trouble(struct buf *out, const json_t *doc)
{
    const json_t *one;
    size_t i;
    if (!json_array_size(json_object_get(doc, "trouble")))
        return;
    buf_add_str(out, "<ul class=trouble aria-label=\"what could not be read\">\n");
    json_array_foreach(json_object_get(doc, "trouble"), i, one)
    {
        buf_add_str(out, "<li>");
        html_json_text(out, one);
        buf_add_byte(out, '\n');
    }
    buf_add_str(out, "</ul>\n");
}

static void put_verdict(struct buf *out, const json_t *doc)
{
    const json_t *tree = report_tree(doc), *reason;
    const char *word = report_string(tree, "verdict");
    struct buf text = {0};
    size_t i;
    if (tree)
        report_headline(&text, doc);
    else
        buf_add_str(&text, "there are no readings");
    buf_printf(out, "<section id=verdict class=\"verdict %s\">\n<p class=headline><b>",
               report_tone(tree));
    html_text0(out, word ? word : "undecided");
    buf_add_str(out, "</b> ");
    html_text0(out, buf_str(&text));
    buf_add_str(out, "</p>\n");
    buf_fini(&text);
    if (json_array_size(json_object_get(tree, "evidence"))) {
        buf_add_str(out, "<ul class=evidence>\n");
        json_array_foreach(json_object_get(tree, "evidence"), i, reason)
        {
            buf_add_str(out, "<li>");
            html_json_text(out, reason);
            buf_add_byte(out, '\n');
        }
        buf_add_str(out, "</ul>\n");
    }
    buf_add_str(out, "</section>\n");
}

static void put_rate(struct buf *out, const char *name, const json_t *rate)
{
    char value[TEXT_SIZE_MAX], low[TEXT_SIZE_MAX], high[TEXT_SIZE_MAX];
    if (!json_is_object(rate))
        return;
    buf_printf(out, "<div><dt>%s<dd>%s <small>%s to %s</small></div>\n", name,
               report_signed(value, json_object_get(rate, "value")),
               report_signed(low, json_object_get(rate, "low")),
               report_signed(high, json_object_get(rate, "high")));
}

static void put_figures(struct buf *out, const json_t *doc)
{
    const json_t *tree = report_tree(doc), *run = json_object_get(doc, "run");
    const json_t *data = json_object_get(doc, "data"),
                 *floor = json_object_get(tree, "floor_bytes");
    char size[TEXT_SIZE_MAX], last[TEXT_SIZE_MAX], text[96];
    buf_add_str(out, "<dl class=figures>\n");
    html_fact(out, "peak", report_size(size, report_peak(doc)));
    if (json_is_number(json_object_get(floor, "first"))) {
        snprintf(text, sizeof text, "%s → %s", report_size(size, json_object_get(floor, "first")),
                 report_size(last, json_object_get(floor, "last")));
        html_fact(out, "floor, first to last", text);
    }
    put_rate(out, "growth a step", json_object_get(tree, "rate_bytes_per_step"));
    put_rate(out, "growth a minute", json_object_get(tree, "rate_bytes_per_min"));
    if (json_integer_value(json_object_get(data, "steps_seen")) > 0) {
        snprintf(text, sizeof text, "%" JSON_INTEGER_FORMAT,
                 json_integer_value(json_object_get(data, "steps_seen")));
        html_fact(out, "steps", text);
    }
    html_fact(out, "limit",
              report_size(size, json_object_get(json_object_get(run, "limit"), "limit_bytes")));
    html_fact(out, "memory to ask for", report_size(size, json_object_get(run, "ask_bytes")));
    buf_add_str(out, "</dl>\n");
}

/* ---- plots ---- */

void html_plots(struct buf *out, const char *title, bool has_steps)
{
    buf_printf(out, "<section id=memory>\n<h2>%s</h2>\n", title);
    if (!has_plots()) {
        buf_add_str(out, "<p class=quiet>This ebb was built without npm, so there are no plots; "
                         "<code>ebb report --text</code> draws them in a terminal.</p>\n"
                         "</section>\n");
        return;
    }
    buf_printf(out,
               "<noscript><p class=quiet>The plots need JavaScript.</p></noscript>\n"
               "<div class=tools id=tools hidden>\n%s"
               "<button type=button id=whole disabled>whole run</button>\n"
               "<span class=quiet>drag over a plot to look closer; double-click for the whole "
               "run</span>\n</div>\n"
               "<div id=plots></div>\n</section>\n",
               has_steps ? "<span role=group aria-label=\"horizontal axis\">"
                           "<button type=button id=by-time aria-pressed=true>by time</button>"
                           "<button type=button id=by-step aria-pressed=false>by step</button>"
                           "</span>\n"
                         : "");
}

bool report_has_steps(const json_t *doc)
{
    return json_integer_value(json_object_get(json_object_get(doc, "data"), "steps_seen")) > 1;
}

int report_html(struct buf *out, const json_t *doc, const char *nonce)
{
    const char *title = report_string(doc, "title");
    json_t *packed = report_pack(doc);
    if (!packed)
        return -ENOMEM;
    int r = html_begin(out, title ? title : "a run", nonce);
    buf_add_str(out, "<header>\n<h1>");
    html_text0(out, title ? title : "a run");
    buf_add_str(out, "</h1>\n");
    put_command(out, json_object_get(doc, "run"));
    put_when(out, doc);
    buf_add_str(out, "</header>\n<main>\n");
    put_trouble(out, doc);
    put_verdict(out, doc);
    put_figures(out, doc);
    if (json_array_size(json_object_get(json_object_get(doc, "data"), "series")))
        html_plots(out, "Memory", report_has_steps(doc));
    html_diagnosis(out, doc);
    html_heap(out, doc);
    html_processes(out, doc);
    html_guard(out, doc);
    html_machine(out, doc);
    html_footer(out, doc);
    if (r == 0)
        r = html_end(out, packed, nonce);
    json_decref(packed);
    return r < 0 ? r : out->failed ? -ENOMEM : 0;
}
