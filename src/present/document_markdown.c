/* Renders a document as Markdown, for an issue or a message. */
#include <stdlib.h>
#include <string.h>

#include "present/document_private.h"
#include "present/markdown.h"

struct paper {
    const struct doc *doc;
    struct buf *out;
    const char *cwd;
    enum doc_kind last; /* kind of the block that was written last */
};

typedef void paper_fn(struct buf *out, const char *raw);

/* Writes RAW with the function AS, with private folders removed from paths. */
static void paper_put(struct paper *p, paper_fn *as, const char *raw)
{
    struct buf text = {0};
    markdown_paths(&text, raw, p->cwd);
    as(p->out, buf_str(&text));
    p->out->failed = p->out->failed || text.failed;
    buf_fini(&text);
}

static size_t paper_spans(struct paper *p, size_t i)
{
    const struct doc *d = p->doc;
    for (; doc_is_span(d, i); i++)
        if (d->nodes[i].kind == NODE_TEXT)
            paper_put(p, d->nodes[i].style == TEXT_IS_CODE ? markdown_code : markdown_text,
                      doc_string(d, i));
    return i;
}

static size_t paper_fact(struct paper *p, size_t i)
{
    const struct doc *d = p->doc;
    bool has_item = false, is_open = false;
    size_t at = i + 1;
    for (; at < d->count && (d->nodes[at].kind == NODE_ITEM || d->nodes[at].kind == NODE_TEXT);) {
        if (d->nodes[at].kind == NODE_ITEM) {
            has_item = is_open;
            at++;
            continue;
        }
        if (!is_open && p->last != NODE_FACT)
            buf_add_str(p->out, "\n| | |\n|---|---|\n");
        if (!is_open) {
            buf_add_str(p->out, "| ");
            paper_put(p, markdown_text, doc_string(d, i));
            buf_add_str(p->out, " | ");
            p->last = NODE_FACT;
        }
        if (has_item)
            buf_add_str(p->out, ", ");
        has_item = false;
        is_open = true;
        at = paper_spans(p, at);
    }
    if (is_open)
        buf_add_str(p->out, " |\n");
    return at;
}

static size_t paper_table(struct paper *p, size_t i)
{
    const struct doc *d = p->doc;
    const struct doc_node *n = &d->nodes[i];
    const struct doc_column *columns = n->data;
    size_t end = doc_table_end(d, i), column = 0;
    unsigned shown = doc_table_shown(d, i);
    if (end == i + 1)
        return end;
    buf_add_str(p->out, "\n|");
    for (size_t k = 0; k < n->count; k++)
        if (shown & 1u << k)
            buf_printf(p->out, " %s |", columns[k].title);
    buf_add_str(p->out, "\n|");
    for (size_t k = 0; k < n->count; k++)
        if (shown & 1u << k)
            buf_add_str(p->out, columns[k].is_number ? "---:|" : "---|");
    for (i++; i < end; i++) {
        if (d->nodes[i].kind == NODE_ROW) {
            buf_add_str(p->out, "\n|");
            column = 0;
        }
        if (d->nodes[i].kind != NODE_CELL || column >= n->count || !(shown & 1u << column++))
            continue;
        buf_add_byte(p->out, ' ');
        paper_spans(p, i + 1);
        buf_add_str(p->out, " |");
    }
    buf_add_byte(p->out, '\n');
    return end;
}

static size_t paper_code(struct paper *p, size_t i)
{
    buf_add_str(p->out, "\n```\n");
    for (; i < p->doc->count && p->doc->nodes[i].kind == NODE_CODE; i++) {
        paper_put(p, markdown_fenced, doc_string(p->doc, i));
        buf_add_byte(p->out, '\n');
    }
    buf_add_str(p->out, "```\n");
    return i;
}

static size_t paper_point(struct paper *p, size_t i)
{
    static const char *const words[] = {[POINT_FOR] = "for: ",
                                        [POINT_AGAINST] = "against: ",
                                        [POINT_ABSENT] = "not measured: ",
                                        [POINT_DECIDE] = "to decide: ",
                                        [POINT_HELP] = "help: "};
    unsigned kind = p->doc->nodes[i].style;
    if (p->last != NODE_POINT)
        buf_add_byte(p->out, '\n');
    buf_printf(p->out, "- %s", kind <= POINT_HELP && words[kind] ? words[kind] : "");
    i = paper_spans(p, i + 1);
    buf_add_byte(p->out, '\n');
    return i;
}

static size_t paper_block(struct paper *p, size_t i)
{
    const struct doc_node *n = &p->doc->nodes[i];
    const char *mark = n->kind == NODE_TITLE     ? "## "
                       : n->kind == NODE_SECTION ? "### "
                       : n->kind == NODE_HEADING ? "#### "
                                                 : "";
    if (!n->len && n->kind == NODE_SECTION)
        return i + 1;
    buf_printf(p->out, "%s%s", p->out->len ? "\n" : "", mark);
    paper_put(p, markdown_text, doc_string(p->doc, i));
    i = paper_spans(p, i + 1);
    buf_add_byte(p->out, '\n');
    return i;
}

static size_t paper_node(struct paper *p, size_t i)
{
    switch (p->doc->nodes[i].kind) {
    case NODE_TITLE:
    case NODE_SECTION:
    case NODE_HEADING:
    case NODE_PARA:
        return paper_block(p, i);
    case NODE_FACT:
        return paper_fact(p, i);
    case NODE_POINT:
        return paper_point(p, i);
    case NODE_CODE:
        return paper_code(p, i);
    case NODE_TABLE:
        return paper_table(p, i);
    default:
        return i + 1;
    }
}

void doc_markdown(struct buf *out, const struct doc *d, const char *cwd)
{
    const struct doc visible = doc_visible(d, DOC_MARKDOWN, false);
    struct paper p = {.doc = &visible, .out = out, .cwd = cwd};
    for (size_t i = 0; i < visible.count;) {
        enum doc_kind kind = visible.nodes[i].kind;
        i = paper_node(&p, i);
        p.last = kind;
    }
    out->failed = out->failed || visible.text.failed;
    free(visible.nodes);
}
