/* Parses sizes, durations and integers given on the command line. */
#include "base/quantity.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/number.h"

__extension__ typedef unsigned __int128 uint128;

/* Long values are truncated in error messages, so that the advice that follows remains visible. */
#define SHOWN "\"%.100s\""

enum { FRACTION_DIGITS_MAX = 18 };

/* A decimal number as the user wrote it. Its value is WHOLE + FRACTION / FRACTION_ONE. */
struct decimal {
    uint64_t whole;
    /* True if the integer part does not fit into 64 bits; WHOLE is then UINT64_MAX. */
    bool overflows;
    bool has_fraction;
    uint64_t fraction;
    uint64_t fraction_one;
};

static bool is_decimal_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Parses digits, optionally followed by a point and digits. Returns the rest of the text, or NULL.
 */
static const char *parse_decimal(const char *s, struct decimal *ret)
{
    struct decimal d = {.fraction_one = 1};
    if (!is_decimal_digit(*s))
        return NULL;
    for (; is_decimal_digit(*s); s++) {
        uint64_t digit = (uint64_t)(*s - '0');
        if (d.whole > (UINT64_MAX - digit) / 10)
            d.overflows = true;
        d.whole = d.overflows ? UINT64_MAX : d.whole * 10 + digit;
    }
    if (*s == '.') {
        s++;
        if (!is_decimal_digit(*s))
            return NULL;
        d.has_fraction = true;
        for (int n = 0; is_decimal_digit(*s); s++, n++) {
            if (n >= FRACTION_DIGITS_MAX)
                continue; /* ignores digits that are too small to change the result */
            d.fraction = d.fraction * 10 + (uint64_t)(*s - '0');
            d.fraction_one *= 10;
        }
    }
    *ret = d;
    return s;
}

/* Computes D * UNIT, rounded down. Returns false if it does not fit. */
static bool scale_decimal(const struct decimal *d, uint64_t unit, uint64_t *ret, bool *ret_is_exact)
{
    uint128 part = (uint128)d->fraction * unit;
    uint128 sum = (uint128)d->whole * unit + part / d->fraction_one;
    if (d->overflows || sum > UINT64_MAX)
        return false;
    *ret = (uint64_t)sum;
    *ret_is_exact = part % d->fraction_one == 0;
    return true;
}

/* Returns the number of bytes in one unit, for the suffixes "", "B", "K", "KB", "KiB" and so on, or
 * 0 if the suffix is unknown. */
static uint64_t size_unit(const char *suffix)
{
    if (strcasecmp(suffix, "") == 0 || strcasecmp(suffix, "B") == 0)
        return 1;
    static const char letters[] = "KMGTP";
    for (unsigned i = 0; letters[i]; i++) {
        if (strncasecmp(suffix, &letters[i], 1) != 0)
            continue;
        const char *rest = suffix + 1;
        bool is_known = !*rest || strcasecmp(rest, "B") == 0 || strcasecmp(rest, "iB") == 0;
        return is_known ? UINT64_C(1) << (10 * (i + 1)) : 0;
    }
    return 0;
}

static int parse_percent(const char *what, const char *s, const struct decimal *d,
                         struct quantity_size *ret, struct err *err)
{
    uint64_t permyriad = 0;
    bool is_exact = true;
    if (!scale_decimal(d, 100, &permyriad, &is_exact) || permyriad < 1 || permyriad > 10000 ||
        (permyriad == 10000 && !is_exact))
        return err_set(err, -ERANGE, "%s: " SHOWN " is not a percentage between 0.01%% and 100%%",
                       what, s);
    *ret = (struct quantity_size){.is_percent = true, .permyriad = (uint32_t)permyriad};
    return 0;
}

int quantity_parse_size(const char *what, const char *s, struct quantity_size *ret, struct err *err)
{
    struct decimal d;
    const char *suffix = parse_decimal(s, &d);
    if (suffix && strcmp(suffix, "%") == 0)
        return parse_percent(what, s, &d, ret, err);
    uint64_t unit = suffix ? size_unit(suffix) : 0;
    /* "1.5" is invalid, because fractions of a byte do not exist */
    if (unit == 0 || (unit == 1 && d.has_fraction))
        return err_set(err, -EINVAL,
                       "%s: " SHOWN " is not a size; write it like 512M, 24G, 1.5GiB or 80%%", what,
                       s);
    uint64_t bytes = 0;
    bool is_exact = true;
    if (!scale_decimal(&d, unit, &bytes, &is_exact))
        return err_set(err, -ERANGE,
                       "%s: " SHOWN " is too large; write it like 512M, 24G or "
                       "80%%",
                       what, s);
    if (bytes == 0)
        return err_set(err, -ERANGE, "%s: " SHOWN " is too small; the minimum is 1 byte", what, s);
    *ret = (struct quantity_size){.bytes = bytes};
    return 0;
}

struct time_unit {
    const char *name;
    uint64_t ns;
};

static const struct time_unit time_units[] = {
    {"d", 86400 * NS_PER_S}, {"h", 3600 * NS_PER_S}, {"m", 60 * NS_PER_S},
    {"s", NS_PER_S},         {"ms", NS_PER_MS},
};
enum { TIME_UNITS = sizeof time_units / sizeof time_units[0] };

static uint64_t time_unit_ns(const char *name)
{
    for (size_t i = 0; i < TIME_UNITS; i++) {
        if (strcmp(name, time_units[i].name) == 0)
            return time_units[i].ns;
    }
    return 0;
}

/* Formats a duration as a user would type it, in the largest unit that represents it exactly. */
static const char *spell_limit(char *out, size_t size, uint64_t ns)
{
    for (size_t i = 0; i < TIME_UNITS && ns > 0; i++) {
        if (ns % time_units[i].ns == 0) {
            snprintf(out, size, "%" PRIu64 "%s", ns / time_units[i].ns, time_units[i].name);
            return out;
        }
    }
    if (ns == 0)
        snprintf(out, size, "0s");
    else
        snprintf(out, size, "%" PRIu64 ".%06" PRIu64 "ms", ns / NS_PER_MS, ns % NS_PER_MS);
    return out;
}

uint64_t quantity_bytes(const struct quantity_size *size, uint64_t whole)
{
    if (!size->is_percent)
        return size->bytes;
    return whole / 10000 * size->permyriad + whole % 10000 * size->permyriad / 10000;
}

int quantity_parse_duration(const char *what, const char *s, uint64_t min_ns, uint64_t max_ns,
                            uint64_t *ret_ns, struct err *err)
{
    struct decimal d;
    const char *suffix = parse_decimal(s, &d);
    if (suffix && !*suffix)
        return err_set(err, -EINVAL, "%s: " SHOWN " has no unit; write it like 500ms, 10s or 5m",
                       what, s);
    uint64_t unit = suffix ? time_unit_ns(suffix) : 0;
    if (unit == 0)
        return err_set(err, -EINVAL, "%s: " SHOWN " is not a time; write it like 500ms, 10s or 5m",
                       what, s);
    char limit[48];
    uint64_t ns = 0;
    bool is_exact = true;
    bool fits = scale_decimal(&d, unit, &ns, &is_exact);
    if (!fits && max_ns == UINT64_MAX)
        return err_set(err, -ERANGE, "%s: " SHOWN " is too long; the maximum is about 500 years",
                       what, s);
    if (!fits || ns > max_ns || (ns == max_ns && !is_exact))
        return err_set(err, -ERANGE, "%s: " SHOWN " is too long; the maximum is %s", what, s,
                       spell_limit(limit, sizeof limit, max_ns));
    if (ns < min_ns)
        return err_set(err, -ERANGE, "%s: " SHOWN " is too short; the minimum is %s", what, s,
                       spell_limit(limit, sizeof limit, min_ns));
    *ret_ns = ns;
    return 0;
}

int quantity_parse_int(const char *what, const char *s, int64_t min, int64_t max, int64_t *ret,
                       struct err *err)
{
    int64_t v = 0;
    int r = number_parse_i64(s, strlen(s), &v);
    if (r == -EINVAL)
        return err_set(err, -EINVAL,
                       "%s: " SHOWN " is not a whole number; expected %" PRId64 " to %" PRId64,
                       what, s, min, max);
    if (r < 0 || v < min || v > max)
        return err_set(err, -ERANGE,
                       "%s: " SHOWN " is out of range; expected %" PRId64 " to %" PRId64, what, s,
                       min, max);
    *ret = v;
    return 0;
}
