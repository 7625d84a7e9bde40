/* Demangles C++ names with the compiler's support library. */
#include "profile/demangle.h"

#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

#include "base/buf.h"

/* A function of libsupc++ that allocates nothing and can be stopped early. __cxa_demangle is not
 * used, because it might expand a name of a hundred bytes to gigabytes. */
int __gcclibcxx_demangle_callback(const char *mangled,
                                  void (*callback)(const char *text, size_t len, void *arg),
                                  void *arg);

struct part {
    struct buf *out;
    size_t room;
    jmp_buf enough;
};

static void take_part(const char *text, size_t len, void *arg)
{
    struct part *part = arg;
    bool is_last = len > part->room;
    buf_add(part->out, text, is_last ? part->room : len);
    part->room -= is_last ? part->room : len;
    if (is_last)
        longjmp(part->enough, 1);
}

/* Truncates the text without splitting a UTF-8 character. */
static void cut(struct buf *out, size_t start)
{
    while (out->len > start && ((unsigned char)out->data[out->len - 1] & 0x80U))
        out->len--;
    buf_add_str(out, "…");
}

void demangle(struct buf *out, const char *name)
{
    size_t start = out->len, len = strlen(name);
    struct part part = {.out = out, .room = DEMANGLE_MAX};
    bool is_mangled = len <= DEMANGLE_MAX && strncmp(name, "_Z", 2) == 0;
    if (setjmp(part.enough) != 0) {
        cut(out, start);
        return;
    }
    if (is_mangled && __gcclibcxx_demangle_callback(name, take_part, &part) == 0 &&
        out->len > start)
        return;
    if (out->len > start)
        out->len = start;
    buf_add(out, name, len > DEMANGLE_MAX ? DEMANGLE_MAX : len);
    if (len > DEMANGLE_MAX)
        cut(out, start);
}

/* S points to an opening bracket. Returns the position after the matching closing bracket, or the
 * end of the string. */
static const char *skip_brackets(const char *s)
{
    unsigned depth = 0;
    for (; *s; s++) {
        if (*s == '<' || *s == '(' || *s == '[' || *s == '{')
            depth++;
        else if ((*s == '>' && s[-1] != '-') || *s == ')' || *s == ']' || *s == '}')
            if (--depth == 0)
                return s + 1;
    }
    return s;
}

/* Skips an operator's name: the brackets in "operator<", "operator()" and "operator new[]" are
 * part of it. */
static const char *skip_operator(const char *s)
{
    s += strlen("operator");
    if (strncmp(s, "()", 2) == 0)
        return s + 2;
    while (*s && *s != '(' && !(*s == '<' && s[-1] != 'r' && s[-1] != '<'))
        s++;
    return s;
}

static bool is_operator(const char *s, const char *start)
{
    return strncmp(s, "operator", 8) == 0 && (s == start || s[-1] == ' ' || s[-1] == ':') &&
           strchr(" <>=!+-*/%^&|~,([\"", s[8]) && s[8];
}

const char *demangle_bare(const char *readable, size_t *ret_len)
{
    const char *start = readable, *s = readable;
    while (*s) {
        if (is_operator(s, readable)) {
            s = skip_operator(s);
            break;
        }
        if (strncmp(s, "(anonymous namespace)", 21) == 0)
            s += 21;
        else if (*s == '(')
            break;
        else if (*s == '<' || *s == '[' || *s == '{')
            s = skip_brackets(s);
        else if (*s++ == ' ')
            start = s;
    }
    *ret_len = (size_t)(s - start);
    return start;
}
