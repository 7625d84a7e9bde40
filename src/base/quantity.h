/* Parses sizes, durations and integers given on the command line. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct err;

struct quantity_size {
    bool is_percent;
    uint64_t bytes; /* if !is_percent */
    /* if is_percent: the percentage in hundredths of a percent, 1 to 10000 (80% is 8000) */
    uint32_t permyriad;
};

/* Returns true if the option was given. A size of 0 cannot be given, so a zeroed struct means that
 * the option was not given. */
static inline bool quantity_is_given(const struct quantity_size *size)
{
    return size->is_percent || size->bytes > 0;
}

/* Parses "512M", "24G", "1.5GiB", "4096" or "80%". K M G T P are powers of 1024, with or without
 * "B" or "iB", in upper or lower case. WHAT is the option's name for the error message. Returns 0,
 * or -EINVAL or -ERANGE with an error that quotes S. A size of 0 is an error. */
int quantity_parse_size(const char *what, const char *s, struct quantity_size *ret,
                        struct err *err);

/* The size in bytes; percentages are relative to WHOLE. */
uint64_t quantity_bytes(const struct quantity_size *size, uint64_t whole);

/* Parses "500ms", "10s", "5m", "2h", "1d" or "1.5s". A number without a unit is an error. MIN and
 * MAX are inclusive, and the error message shows them. */
int quantity_parse_duration(const char *what, const char *s, uint64_t min_ns, uint64_t max_ns,
                            uint64_t *ret_ns, struct err *err);

/* Parses S as a decimal integer in [MIN, MAX]; no other characters are allowed. */
int quantity_parse_int(const char *what, const char *s, int64_t min, int64_t max, int64_t *ret,
                       struct err *err);
