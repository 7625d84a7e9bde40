/* Formats error messages, truncated to the size of struct err. */
#include "base/err.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* Removes an incomplete UTF-8 character that vsnprintf or snprintf left at the end. */
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

/* Formats a message. If IS_PREFIX, the old message is appended. */
__attribute__((format(printf, 3, 0))) static void err_format(struct err *err, bool is_prefix,
                                                             const char *fmt, va_list ap)
{
    if (!err)
        return;
    int saved = errno;
    /* the new message is built separately, because the format arguments may point into *err */
    struct err made = {""};
    const int size = (int)sizeof made.text;
    int n = vsnprintf(made.text, sizeof made.text, fmt, ap);
    if (n >= 0 && n < size && is_prefix && err->text[0])
        n += snprintf(made.text + n, (size_t)(size - n), ": %s", err->text);
    if (n >= size)
        trim_torn_character(made.text, sizeof made.text - 1);
    *err = made;
    errno = saved;
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    err_format(err, false, fmt, ap);
    va_end(ap);
    return code;
}

int err_prefix(struct err *err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    err_format(err, true, fmt, ap);
    va_end(ap);
    return code;
}
