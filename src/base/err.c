/* Sentences about failures: written whole, cut where they must be, never overrun. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* snprintf cuts at a byte; take back the torn UTF-8 character, if that is what the cut left. */
static void trim_torn_character(char *s, size_t len)
{
    size_t start = len;
    while (start > 0 && len - start < 3 && ((unsigned char)s[start - 1] & 0xC0) == 0x80)
        start--;
    if (start == 0)
        return;
    unsigned char lead = (unsigned char)s[start - 1];
    size_t want = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
    if (want > len - start + 1)
        s[start - 1] = '\0';
}

__attribute__((format(printf, 2, 0))) static void format_cut(char text[static 512], const char *fmt,
                                                             va_list ap)
{
    int n = vsnprintf(text, 512, fmt, ap);
    if (n < 0)
        text[0] = '\0';
    else if (n >= 512)
        trim_torn_character(text, 511);
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
    if (!err)
        return code;
    int saved = errno;
    struct err made; /* the arguments may point into *err */
    va_list ap;
    va_start(ap, fmt);
    format_cut(made.text, fmt, ap);
    va_end(ap);
    *err = made;
    errno = saved;
    return code;
}

int err_prefix(struct err *err, int code, const char *fmt, ...)
{
    if (!err)
        return code;
    int saved = errno;
    struct err made;
    va_list ap;
    va_start(ap, fmt);
    format_cut(made.text, fmt, ap);
    va_end(ap);
    if (err->text[0] != '\0') {
        size_t len = strlen(made.text);
        size_t room = sizeof(made.text) - len;
        int n = snprintf(made.text + len, room, ": %s", err->text);
        if (n < 0 || (size_t)n >= room)
            trim_torn_character(made.text, strlen(made.text));
    }
    *err = made;
    errno = saved;
    return code;
}
