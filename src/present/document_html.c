/* Renders a document as HTML elements. */
#include "present/html.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "present/assets.h"
#include "present/document_private.h"

/* ---- escaping ---- */

void html_text(struct buf *out, const char *s, size_t len)
{
    static const char *const entities[UCHAR_MAX + 1] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
    struct buf harmless = {0};
    text_escape(&harmless, s, len);
    for (size_t i = 0; i < harmless.len; i++) {
        const char *entity = entities[(unsigned char)harmless.data[i]];
        if (entity)
            buf_add_str(out, entity);
        else
            buf_add(out, harmless.data + i, 1);
    }
    out->failed = out->failed || harmless.failed;
    buf_fini(&harmless);
}

void html_text0(struct buf *out, const char *s)
{
    if (s)
        html_text(out, s, strlen(s));
}

int html_json(struct buf *out, const json_t *doc)
{
    AUTO_FREE char *text = json_dumps(doc, JSON_COMPACT | JSON_ENSURE_ASCII | JSON_ENCODE_ANY);
    if (!text)
        return -ENOMEM;
    for (const char *at = text; *at;) {
        size_t n = strcspn(at, "<>&");
        buf_add(out, at, n);
        at += n;
        if (*at)
            buf_printf(out, "\\u%04x", (unsigned)*at++);
    }
    return out->failed ? -ENOMEM : 0;
}

/* ---- text ---- */

enum { SENTENCE = 60 }; /* facts with more bytes than this get a line of their own */

struct html {
    const struct doc *doc;
    struct buf *out;
    const char *list; /* closing tag of the open list of points or facts, or NULL */
    const char *kind; /* CSS class of the open list */
    bool has_section;
};

static const char *const html_tones[] = {
    [TONE_PLAIN] = "",    [TONE_DIM] = "quiet", [TONE_STRONG] = "",
    [TONE_GOOD] = "good", [TONE_BAD] = "bad",   [TONE_OPEN] = "open"};

static void html_list_end(struct html *h)
{
    if (h->list)
        buf_add_str(h->out, h->list);
    h->list = h->kind = NULL;
}

/* Opens a list TAG of class KIND, unless it is already open. */
static void html_list(struct html *h, const char *tag, const char *end, const char *kind)
{
    if (h->list && strcmp(h->kind, kind) == 0)
        return;
    html_list_end(h);
    buf_printf(h->out, "<%s class=%s>\n", tag, kind);
    h->list = end;
    h->kind = kind;
}

static void html_string(struct html *h, size_t i)
{
    html_text(h->out, doc_string(h->doc, i), h->doc->nodes[i].len);
}

static void html_span(struct html *h, size_t i, bool in_fact)
{
    const struct doc_node *n = &h->doc->nodes[i];
    const char *tag = n->style == TEXT_IS_CODE ? "code"
                      : n->tone == TONE_DIM    ? (in_fact ? "small" : "span")
                      : n->tone == TONE_PLAIN  ? NULL
                                               : "b";
    if (n->kind == NODE_SWATCH) {
        buf_printf(h->out, "<span class=\"key %s\"></span>", doc_string(h->doc, i));
        return;
    }
    if (tag)
        buf_printf(h->out, "<%s%s%s>", tag, *html_tones[n->tone] && !in_fact ? " class=" : "",
                   in_fact ? "" : html_tones[n->tone]);
    html_string(h, i);
    if (tag)
        buf_printf(h->out, "</%s>", tag);
}

static size_t html_spans(struct html *h, size_t i)
{
    const struct doc *d = h->doc;
    for (; doc_is_span(d, i); i++)
        html_span(h, i, false);
    return i;
}

/* ---- blocks ---- */

static size_t html_fact(struct html *h, size_t i)
{
    const struct doc *d = h->doc;
    const struct doc_node *n = &d->nodes[i];
    bool has_item = false, is_open = false;
    size_t at = i + 1;
    for (; at < d->count && (d->nodes[at].kind == NODE_ITEM || d->nodes[at].kind == NODE_TEXT);
         at++) {
        if (d->nodes[at].kind == NODE_ITEM) {
            has_item = is_open;
            continue;
        }
        if (!is_open) {
            html_list(h, "dl", "</dl>\n", n->style == FACT_IS_FIGURE ? "figures" : "facts");
            buf_add_str(h->out, d->nodes[at].len > SENTENCE ? "<div class=wide><dt>" : "<div><dt>");
            html_string(h, i);
            buf_add_str(h->out, "<dd>");
        }
        if (has_item)
            buf_add_str(h->out, ", ");
        has_item = false;
        is_open = true;
        html_span(h, at, true);
    }
    if (is_open)
        buf_add_str(h->out, "</div>\n");
    return at;
}

static size_t html_point(struct html *h, size_t i)
{
    static const struct {
        const char *list, *item;
    } kinds[] = {
        [POINT_PLAIN] = {"evidence", "<li>"},
        [POINT_FOR] = {"reasons", "<li class=for><b>for</b> "},
        [POINT_AGAINST] = {"reasons", "<li class=against><b>against</b> "},
        [POINT_ABSENT] = {"reasons", "<li class=absent><b>not measured</b> "},
        [POINT_DECIDE] = {"reasons", "<li class=decide><b>to decide it</b> "},
        [POINT_TROUBLE] = {"trouble", "<li>"},
        [POINT_PLACE] = {"place", "<li class=where>"},
        [POINT_SOURCE] = {"place", "<li class=source>"},
        [POINT_NOTE] = {"place", "<li>"},
        [POINT_HELP] = {"place", "<li class=help><b>help</b> "},
    };
    unsigned kind = h->doc->nodes[i].style;
    html_list(h, "ul", "</ul>\n", kinds[kind].list);
    buf_add_str(h->out, kinds[kind].item);
    i = html_spans(h, i + 1);
    buf_add_byte(h->out, '\n');
    return i;
}

static size_t html_para(struct html *h, size_t i)
{
    const struct doc_node *n = &h->doc->nodes[i];
    const char *tone = html_tones[n->tone];
    if (n->style == PARA_IS_HEADLINE)
        buf_add_str(h->out, "<p class=headline>");
    else
        buf_printf(h->out, *tone ? "<p class=%s>" : "<p>", tone);
    i = html_spans(h, i + 1);
    buf_add_str(h->out, "</p>\n");
    return i;
}

static size_t html_code(struct html *h, size_t i)
{
    buf_add_str(h->out, "<p class=command><code>");
    html_string(h, i);
    for (i++; i < h->doc->count && h->doc->nodes[i].kind == NODE_CODE; i++) {
        buf_add_str(h->out, "<br>");
        html_string(h, i);
    }
    buf_add_str(h->out, "</code></p>\n");
    return i;
}

static void html_section_end(struct html *h)
{
    if (h->has_section)
        buf_add_str(h->out, "</section>\n");
    h->has_section = false;
}

static void html_section(struct html *h, size_t i)
{
    const struct doc_node *n = &h->doc->nodes[i];
    html_section_end(h);
    buf_printf(h->out, "<section id=%s", n->name);
    if (n->tone != TONE_PLAIN)
        buf_printf(h->out, " class=\"verdict %s\"", html_tones[n->tone]);
    buf_add_str(h->out, n->len ? ">\n<h2>" : ">\n");
    html_string(h, i);
    buf_add_str(h->out, n->len ? "</h2>\n" : "");
    h->has_section = true;
}

static size_t html_fold(struct html *h, size_t i)
{
    unsigned kind = h->doc->nodes[i].style;
    buf_printf(h->out, "<details class=%s%s><summary>", kind == FOLD_GROUP ? "group" : "hypothesis",
               kind == FOLD_OPEN ? " open" : "");
    i = html_spans(h, i + 1);
    buf_add_str(h->out, "</summary>\n");
    return i;
}

/* ---- tables ---- */

/* Writes the cell at I and, in the last column, the lines below the cell. Returns the index after
 * these nodes. */
static size_t html_cell(struct html *h, size_t i, const struct doc_column *c, bool is_last)
{
    const struct doc *d = h->doc;
    const char *tone = html_tones[d->nodes[i].tone];
    size_t end = i + 1;
    while (doc_is_span(d, end))
        end++;
    bool has_below = end < d->count && d->nodes[end].kind == NODE_BELOW;
    const char *kind = c->is_number ? "n" : is_last ? "wide" : "";
    if (*kind && *tone)
        buf_printf(h->out, "<td class=\"%s %s\">", kind, tone);
    else
        buf_printf(h->out, *kind || *tone ? "<td class=%s%s>" : "<td>", kind, tone);
    buf_add_str(h->out, has_below ? "<details><summary>" : "");
    html_spans(h, i + 1);
    if (has_below)
        buf_add_str(h->out, "</summary><ol class=stack>\n");
    while (end < d->count && d->nodes[end].kind == NODE_BELOW) {
        buf_add_str(h->out, d->nodes[end].tone == TONE_DIM ? "<li>" : "<li class=python>");
        end = html_spans(h, end + 1);
        buf_add_byte(h->out, '\n');
    }
    if (has_below)
        buf_add_str(h->out, "</ol></details>");
    return end;
}

static size_t html_table(struct html *h, size_t i)
{
    const struct doc *d = h->doc;
    const struct doc_node *n = &d->nodes[i];
    const struct doc_column *columns = n->data;
    size_t end = doc_table_end(d, i), column = 0;
    if (end == i + 1)
        return end;
    unsigned shown = doc_table_shown(d, i);
    buf_printf(h->out,
               "<div class=scroll role=region aria-label=\"%s\" tabindex=0>\n<table>\n<thead><tr>",
               n->name ? n->name : "table");
    for (size_t k = 0; k < n->count; k++) {
        if (!(shown & 1u << k))
            continue;
        buf_add_str(h->out, columns[k].is_number ? "<th class=n>" : "<th>");
        html_text0(h->out, columns[k].title);
    }
    buf_add_str(h->out, "\n</thead><tbody>\n");
    for (i++; i < end;) {
        if (d->nodes[i].kind == NODE_ROW) {
            buf_add_str(h->out, column ? "\n<tr>" : "<tr>");
            column = 0;
        }
        if (d->nodes[i].kind != NODE_CELL || column >= n->count) {
            i++;
            continue;
        }
        bool is_shown = shown & 1u << column;
        column++;
        i = is_shown ? html_cell(h, i, &columns[column - 1], column == n->count) : i + 1;
    }
    buf_add_str(h->out, "\n</tbody></table></div>\n");
    return end;
}

/* ---- pictures ---- */

static void html_bar(struct html *h, size_t i)
{
    const struct doc_part *parts = h->doc->nodes[i].data;
    double x = 0;
    buf_add_str(h->out, "<div class=bar><span>");
    html_string(h, i);
    buf_add_str(h->out, "</span><svg viewBox=\"0 0 1000 1\" preserveAspectRatio=none "
                        "aria-hidden=true>");
    for (size_t k = 0; k < h->doc->nodes[i].count; k++) {
        double width = parts[k].share * 1000;
        if (width >= 0.3)
            buf_printf(h->out, "<rect class=%s x=\"%.1f\" width=\"%.1f\" height=\"1\"/>",
                       parts[k].colour, x, width);
        x += width;
    }
    buf_add_str(h->out, "</svg></div>\n");
}

static bool html_has_script(void)
{
    struct buf js = {0};
    bool has = asset_unpack("report.js", &js) == 0 && js.len > 0;
    buf_fini(&js);
    return has;
}

static void html_canvas(struct html *h, const char *what)
{
    if (strcmp(what, "flame") == 0 || strcmp(what, "flame-gpu") == 0)
        buf_printf(h->out, "<div id=%s></div>\n", what);
    else if (!html_has_script())
        buf_add_str(h->out,
                    "<p class=quiet>This build of ebb contains no plots, because npm was not "
                    "installed; <code>ebb report --text</code> draws them in a terminal.</p>\n");
    else
        buf_printf(h->out,
                   "<noscript><p class=quiet>The plots need JavaScript.</p></noscript>\n"
                   "<div class=tools id=tools hidden>\n%s"
                   "<button type=button id=whole disabled>whole run</button>\n"
                   "<span class=quiet>drag over a plot to zoom in; double-click for the whole "
                   "run</span>\n</div>\n<div id=plots></div>\n",
                   strcmp(what, "steps") == 0
                       ? "<span role=group aria-label=\"horizontal axis\">"
                         "<button type=button id=by-time aria-pressed=true>by time</button>"
                         "<button type=button id=by-step aria-pressed=false>by step</button>"
                         "</span>\n"
                       : "");
}

/* ---- the complete document ---- */

static size_t html_node(struct html *h, size_t i)
{
    const struct doc_node *n = &h->doc->nodes[i];
    if (n->kind != NODE_FACT && n->kind != NODE_POINT)
        html_list_end(h);
    switch (n->kind) {
    case NODE_TITLE:
    case NODE_HEADING:
        buf_add_str(h->out, n->kind == NODE_TITLE ? "<h1>" : "<h3>");
        html_string(h, i);
        buf_add_str(h->out, n->kind == NODE_TITLE ? "</h1>\n" : "</h3>\n");
        return i + 1;
    case NODE_SECTION:
        html_section(h, i);
        return i + 1;
    case NODE_PARA:
        return html_para(h, i);
    case NODE_FACT:
        return html_fact(h, i);
    case NODE_POINT:
        return html_point(h, i);
    case NODE_CODE:
        return html_code(h, i);
    case NODE_TABLE:
        return html_table(h, i);
    case NODE_FOLD:
        return html_fold(h, i);
    case NODE_FOLD_END:
        buf_add_str(h->out, "</details>\n");
        return i + 1;
    case NODE_BAR:
        html_bar(h, i);
        return i + 1;
    case NODE_CANVAS:
        html_canvas(h, doc_string(h->doc, i));
        return i + 1;
    default:
        return i + 1;
    }
}

void doc_html(struct buf *out, const struct doc *d)
{
    const struct doc visible = doc_visible(d, DOC_HTML, true);
    struct html h = {.doc = &visible, .out = out};
    for (size_t i = 0; i < visible.count;)
        i = html_node(&h, i);
    html_list_end(&h);
    html_section_end(&h);
    out->failed = out->failed || visible.text.failed;
    free(visible.nodes);
}
