/* Strict, locale-free parsing of whole and decimal numbers. */
#include "base/number.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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
            __builtin_sub_overflow(v, s[i] - '0', &v)) { /* downwards: INT64_MIN fits */
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

/* A decimal taken apart; MANTISSA is exact while DIGITS is at most 19. */
struct decimal {
    bool negative;
    bool has_exponent;
    unsigned digits; /* significant ones, leading zeros not counted */
    unsigned decimals;
    uint64_t mantissa;
};

static size_t scan_digits(const char *s, size_t len, size_t i, struct decimal *d)
{
    for (; i < len && is_digit(s[i]); i++) {
        if (d->digits < 19)
            d->mantissa = d->mantissa * 10 + (uint64_t)(s[i] - '0');
        if ((d->digits > 0 || s[i] != '0') && d->digits < 1000)
            d->digits++;
    }
    return i;
}

static int scan_decimal(const char *s, size_t len, struct decimal *d)
{
    size_t i = 0, begin, whole;

    *d = (struct decimal){0};
    if (len > 0 && (s[0] == '-' || s[0] == '+')) {
        d->negative = s[0] == '-';
        i = 1;
    }
    begin = i;
    i = scan_digits(s, len, i, d);
    whole = i - begin;
    if (i < len && s[i] == '.') {
        begin = ++i;
        i = scan_digits(s, len, i, d);
        d->decimals = i - begin < 1000 ? (unsigned)(i - begin) : 1000;
    }
    if (whole == 0 && d->decimals == 0)
        return -EINVAL;
    if (i < len && (s[i] == 'e' || s[i] == 'E')) {
        struct decimal ignored = {0};

        d->has_exponent = true;
        i++;
        if (i < len && (s[i] == '-' || s[i] == '+'))
            i++;
        begin = i;
        i = scan_digits(s, len, i, &ignored);
        if (i == begin)
            return -EINVAL;
    }
    return i == len ? 0 : -EINVAL;
}

/* The rare long or exponential form: strtod of the C locale on a copy that ends in NUL. */
static int parse_slow(const char *s, size_t len, double *ret)
{
    char small[128];
    char *copy = len < sizeof(small) ? small : malloc(len + 1);
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    int r = -ENOMEM;

    if (copy && c_locale) {
        double v;

        memcpy(copy, s, len);
        copy[len] = '\0';
        v = strtod_l(copy, NULL, c_locale);
        r = isfinite(v) ? 0 : -ERANGE;
        if (r == 0)
            *ret = v;
    }
    if (c_locale)
        freelocale(c_locale);
    if (copy != small)
        free(copy);
    return r;
}

int number_parse_double(const char *s, size_t len, double *ret)
{
    static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                    1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                    1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    struct decimal d;
    int r = scan_decimal(s, len, &d);

    if (r < 0)
        return r;
    /* Both operands are exact, so the one division rounds correctly. */
    if (!d.has_exponent && d.digits <= 19 && d.mantissa <= UINT64_C(1) << 53 && d.decimals <= 22) {
        double v = (double)d.mantissa / powers[d.decimals];

        *ret = d.negative ? -v : v;
        return 0;
    }
    return parse_slow(s, len, ret);
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
