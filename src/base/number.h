/* Parses numbers strictly, independent of the locale. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Parses LEN bytes as a decimal integer with an optional '-'. Returns 0, -EINVAL if the text is
 * invalid, or -ERANGE if the value does not fit. */
int number_parse_i64(const char *s, size_t len, int64_t *ret);
/* Parses a decimal number with optional sign, fraction and exponent ("1e9", "-0.5", ".5"). Spaces,
 * hexadecimal, inf and nan are invalid. Returns 0, -EINVAL if the text is invalid, or -ERANGE if
 * the value is too large for a double. */
int number_parse_double(const char *s, size_t len, double *ret);

/* Both functions convert any double to an integer. Values out of range are clamped and NaN becomes
 * 0, whereas a plain C cast of such a value is undefined behaviour. */
uint64_t number_to_u64(double v); /* truncates towards zero */
int64_t number_to_i64(double v);  /* rounds to nearest */

static inline uint64_t u64_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t u64_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* Returns A - B, or 0 if B is larger. */
static inline uint64_t u64_minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}
