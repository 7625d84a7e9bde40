/* Byte ranges received from other programs, which need not end in NUL, and operations on them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

struct span {
    const char *p;
    size_t len;
};

static inline struct span span_of(const char *text)
{
    return (struct span){text, strlen(text)};
}

/* S without its first N bytes. S must have at least N bytes. */
static inline struct span span_from(struct span s, size_t n)
{
    return (struct span){s.p + n, s.len - n};
}

static inline bool span_is(struct span s, const char *text)
{
    return s.len == strlen(text) && memcmp(s.p, text, s.len) == 0;
}

static inline bool span_begins(struct span s, const char *text)
{
    size_t n = strlen(text);
    return s.len >= n && memcmp(s.p, text, n) == 0;
}

static inline bool span_ends(struct span s, const char *text)
{
    size_t n = strlen(text);
    return s.len >= n && memcmp(s.p + s.len - n, text, n) == 0;
}

/* Returns the first occurrence of TEXT in S, or NULL. */
static inline const char *span_find(struct span s, const char *text)
{
    return s.len > 0 ? memmem(s.p, s.len, text, strlen(text)) : NULL;
}

/* True if S contains one of the strings in LIST, which ends in NULL. */
static inline bool span_holds_any(struct span s, const char *const *list)
{
    for (; *list; list++)
        if (span_find(s, *list))
            return true;
    return false;
}

static inline bool span_is_blank(char c)
{
    return c == ' ' || c == '\t';
}

/* S without leading and trailing blanks. */
static inline struct span span_trimmed(struct span s)
{
    while (s.len > 0 && span_is_blank(s.p[s.len - 1]))
        s.len--;
    while (s.len > 0 && span_is_blank(*s.p))
        s = span_from(s, 1);
    return s;
}

/* Copies S to a C string, which the caller frees (strndup would read beyond the end of S). Returns
 * NULL if out of memory. */
static inline char *span_copy(struct span s)
{
    char *copy = malloc(s.len + 1);
    if (copy) {
        memcpy(copy, s.p, s.len);
        copy[s.len] = '\0';
    }
    return copy;
}
