/* Facts as labelled lines, broken where the width ends; values that may be missing. */
#include "present/page.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/text.h"
#include "present/cells.h"

/* ---- values that may be missing ---- */

const json_t *summary_at(const json_t *o, const char *a, const char *b)
{
    const json_t *v = json_object_get(o, a);
    return b ? json_object_get(v, b) : v;
}

/* The text of a size, or NULL where there is none. */
const char *summary_size(char out[TEXT_SIZE_MAX], const json_t *v)
{
    if (!json_is_integer(v) || json_integer_value(v) < 0)
        return NULL;
    return text_size(out, (uint64_t)json_integer_value(v));
}

/* Text of another program, harmless and at most WIDTH columns. */
char *summary_fit(char out[TEXT_MAX], size_t width, const json_t *v)
{
    return text_fit(out, TEXT_MAX, width, json_is_string(v) ? json_string_value(v) : "",
                    json_is_string(v) ? json_string_length(v) : 0);
}

/* ---- laying out ---- */

void page_put(struct page *p, enum style style, const char *text)
{
    static const char *const codes[] = {[STYLE_DIM] = "\033[2m",
                                        [STYLE_STRONG] = "\033[1m",
                                        [STYLE_GOOD] = "\033[1;32m",
                                        [STYLE_BAD] = "\033[1;31m"};
    bool is_coloured = p->is_coloured && style != STYLE_PLAIN && text[0];
    if (is_coloured)
        buf_add_str(p->out, codes[style]);
    buf_add_str(p->out, text);
    if (is_coloured)
        buf_add_str(p->out, "\033[0m");
    p->column += cell_columns(text);
}

void page_pad(struct page *p, size_t column)
{
    for (; p->column < column; p->column++)
        buf_add_byte(p->out, ' ');
}

void page_line(struct page *p)
{
    buf_add_byte(p->out, '\n');
    p->column = 0;
}

void page_fact(struct page *p, const char *label)
{
    p->label = label;
}

void page_words(struct page *p, enum style style, const char *text)
{
    char word[TEXT_MAX];
    for (bool is_first = true; *text; is_first = false) {
        size_t len = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)len, text);
        if (!is_first && p->column + 2 + cell_columns(word) > p->width) {
            page_line(p);
            page_pad(p, p->indent ? p->indent : LABEL_COLUMNS);
        } else {
            page_pad(p, p->column + !is_first);
        }
        page_put(p, style, word);
        text += len + strspn(text + len, " ");
    }
}

void page_add(struct page *p, enum style style, const char *text)
{
    size_t columns = cell_columns(text);
    if (p->label) {
        page_put(p, STYLE_DIM, p->label);
        page_pad(p, LABEL_COLUMNS);
    } else {
        page_put(p, STYLE_PLAIN, ",");
        if (p->column + 2 + columns > p->width)
            page_line(p);
        page_pad(p, p->column ? p->column + 1 : LABEL_COLUMNS);
    }
    if (p->column + columns + 1 > p->width && strlen(text) < TEXT_MAX)
        page_words(p, style, text);
    else
        page_put(p, style, text);
    p->label = NULL;
}

void page_addf(struct page *p, const char *fmt, ...)
{
    char text[PATH_MAX + TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    page_add(p, STYLE_PLAIN, text);
}

void page_fact_end(struct page *p)
{
    if (!p->label)
        page_line(p);
    p->label = NULL;
}
