/* Parses numbers strictly, independent of the locale. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Parses a whole decimal number of LEN bytes with an optional '-'. Returns 0, -EINVAL if it is
 * invalid, or -ERANGE if it does not fit. */
int number_parse_i64(const char *s, size_t len, int64_t *ret);
/* Parses a decimal number with optional sign, fraction and exponent ("1e9", "-0.5", ".5"); spaces,
 * hex, inf and nan are refused. Returns 0, -EINVAL, or -ERANGE if it is too large for a double. */
int number_parse_double(const char *s, size_t len, double *ret);

/* Both functions convert any double to a whole number. A value out of range becomes the nearest
 * value in range, and NaN becomes 0; a plain C cast of such a value is undefined. */
uint64_t number_to_u64(double v); /* truncates */
int64_t number_to_i64(double v);  /* rounds */

static inline uint64_t u64_min(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static inline uint64_t u64_max(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A - B; 0 if B is larger. */
static inline uint64_t u64_minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}
