/* Parses whole and decimal numbers strictly, independent of the locale. */
#include "base/number.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

int number_parse_i64(const char *s, size_t len, int64_t *ret)
{
    bool negative = len > 0 && s[0] == '-';
    size_t i = negative ? 1 : 0;
    int64_t v = 0;
    if (i == len)
        return -EINVAL;
    for (; i < len; i++) {
        if (!is_digit(s[i]))
            return -EINVAL;
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_sub_overflow(v, s[i] - '0',
                                   /* the value is accumulated as a negative number, because
                                    * -INT64_MIN does not fit into int64_t */
                                   &v)) {
            for (; i < len; i++)
                if (!is_digit(s[i]))
                    return -EINVAL;
            return -ERANGE;
        }
    }
    if (!negative && v == INT64_MIN)
        return -ERANGE;
    *ret = negative ? v : -v;
    return 0;
}

static locale_t c_locale; /* the C locale; (locale_t)0 if out of memory */

__attribute__((constructor)) static void c_locale_make(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

static size_t skip_digits(const char *s, size_t len, size_t i)
{
    while (i < len && is_digit(s[i]))
        i++;
    return i;
}

static size_t skip_sign(const char *s, size_t len, size_t i)
{
    return i + (i < len && (s[i] == '-' || s[i] == '+'));
}

static bool is_decimal(const char *s, size_t len)
{
    size_t begin = skip_sign(s, len, 0), i = skip_digits(s, len, begin), digits = i - begin;
    if (i < len && s[i] == '.') {
        begin = ++i;
        i = skip_digits(s, len, i);
        digits += i - begin;
    }
    if (digits > 0 && i < len && (s[i] == 'e' || s[i] == 'E')) {
        begin = skip_sign(s, len, i + 1);
        i = skip_digits(s, len, begin);
        digits = i - begin;
    }
    return digits > 0 && i == len;
}

int number_parse_double(const char *s, size_t len, double *ret)
{
    char small[128]; /* copied because strtod requires a terminating NUL */
    if (!is_decimal(s, len))
        return -EINVAL;
    AUTO_FREE char *large = len < sizeof small ? NULL : malloc(len + 1);
    char *copy = len < sizeof small ? small : large;
    if (!copy || !c_locale)
        return -ENOMEM;
    memcpy(copy, s, len);
    copy[len] = '\0';
    double v = strtod_l(copy, NULL, c_locale);
    if (!isfinite(v))
        return -ERANGE;
    *ret = v;
    return 0;
}

uint64_t number_to_u64(double v)
{
    return v >= 0x1p64 ? UINT64_MAX : v > 0 ? (uint64_t)v : 0;
}

int64_t number_to_i64(double v)
{
    if (v >= 0x1p63)
        return INT64_MAX;
    return v > -0x1p63 ? (int64_t)llround(v) : v <= -0x1p63 ? INT64_MIN : 0;
}
