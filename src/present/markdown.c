/* Escapes text of other programs for Markdown. */
#include "present/markdown.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"

static bool is_word(char c)
{
    return isalnum((unsigned char)c) || (unsigned char)c >= 0x80;
}

/* ---- markup ---- */

/* Returns true at an @name or #1. Issue trackers turn these into a mention or a reference even if
 * they are escaped. A comment after the first character prevents that. */
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

/* Returns the length of the part of the path at S (LEN bytes) that is private to its author, or
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
