/* Renders a document as Markdown, for an issue or a message. */
#include "present/markdown.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "present/document_private.h"

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

/* ---- escaping ---- */

/* Returns true if an @name or #1 begins at I. Issue trackers turn these into a mention or a
 * reference even if they are escaped. An HTML comment after the first character prevents that. */
static bool is_call(const char *text, size_t i, size_t len)
{
    bool begins = i == 0 || !is_word(text[i - 1]);
    return (text[i] == '@' || text[i] == '#') && begins && i + 1 < len && is_word(text[i + 1]);
}

/* Returns true if the character at I is markup. An underscore between letters is not markup, and
 * a single tilde is a home folder. */
static bool is_markup(const char *text, size_t i, size_t len)
{
    char before = i ? text[i - 1] : ' ', after = i + 1 < len ? text[i + 1] : ' ';
    if (text[i] == '_')
        return !is_word(before) || !is_word(after);
    if (text[i] == '~')
        return before == '~' || after == '~';
    return strchr("\\`*[]|", text[i]) != NULL;
}

void markdown_text(struct buf *out, const char *raw)
{
    struct buf text = {0};
    text_escape(&text, raw, strlen(raw));
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        bool is_address = c == ':' && i + 2 < text.len && memcmp(text.data + i, "://", 3) == 0;
        if (c == '<' || c == '>' || c == '&')
            buf_add_str(out, c == '<' ? "&lt;" : c == '>' ? "&gt;" : "&amp;");
        else if (is_address)
            /* An issue tracker would turn an unescaped URL into a link. */
            buf_add_str(out, "&#58;");
        else if (is_markup(text.data, i, text.len))
            buf_printf(out, "\\%c", c);
        else
            buf_add(out, &c, 1);
        if (is_call(text.data, i, text.len))
            buf_add_str(out, "<!-- -->");
    }
    out->failed = out->failed || text.failed;
    buf_fini(&text);
}

static void add_code(struct buf *out, const char *raw, bool in_table)
{
    struct buf text = {0};
    text_escape(&text, raw, strlen(raw));
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        if (c == '|' && in_table)
            buf_add_byte(out, '\\');
        buf_add_byte(out, (uint8_t)(c == '`' ? '\'' : c));
    }
    out->failed = out->failed || text.failed;
    buf_fini(&text);
}

void markdown_code(struct buf *out, const char *raw)
{
    if (!*raw)
        return;
    buf_add_byte(out, '`');
    add_code(out, raw, true);
    buf_add_byte(out, '`');
}

void markdown_fenced(struct buf *out, const char *raw)
{
    add_code(out, raw, false);
}

/* ---- folders ---- */

/* If the path at S (LEN bytes) begins with a part that its author may want to keep private, returns
 * the length of that part and sets *RET_INSTEAD to the text that replaces it. Otherwise returns
 * 0. */
static size_t private_length(const char *s, size_t len, const char *cwd, const char **ret_instead)
{
    static const char *const packages[] = {"/site-packages/", "/dist-packages/"};
    size_t n = cwd ? strlen(cwd) : 0;
    *ret_instead = "";
    for (size_t i = 0; i < sizeof packages / sizeof *packages; i++) {
        const char *at = memmem(s, len, packages[i], strlen(packages[i]));
        if (at)
            return (size_t)(at - s) + strlen(packages[i]);
    }
    if (n > 1 && len > n + 1 && memcmp(s, cwd, n) == 0 && s[n] == '/')
        return n + 1;
    *ret_instead = "~";
    if (len >= 5 && memcmp(s, "/root", 5) == 0 && (len == 5 || s[5] == '/'))
        return 5;
    if (len > 6 && memcmp(s, "/home/", 6) == 0) {
        const char *end = memchr(s + 6, '/', len - 6);
        return end ? (size_t)(end - s) : len;
    }
    return 0;
}

void markdown_paths(struct buf *out, const char *raw, const char *cwd)
{
    char before = ' ';
    for (const char *at = raw; *at; before = at[-1]) {
        const char *instead;
        bool begins = *at == '/' && !is_word(before) && !strchr("/.~_-", before);
        /* in a sentence or a command, a path ends at the first of these characters */
        size_t len = begins ? strcspn(at, " \t\n,;\"'()<>|=") : 1;
        size_t cut = begins ? private_length(at, len, cwd, &instead) : 0;
        if (cut)
            buf_add_str(out, instead);
        buf_add(out, at + cut, len - cut);
        at += len;
    }
}

/* ---- the document ---- */

struct paper {
    const struct doc *doc;
    struct buf *out;
    const char *cwd;
    enum doc_kind last; /* kind of the block that was written last */
};

typedef void paper_fn(struct buf *out, const char *raw);

/* Writes RAW with the function AS, which escapes it. Private folders are removed from paths. */
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
