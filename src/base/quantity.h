/* Parses sizes and times of a command line. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct err;

struct quantity_size {
    bool is_percent;
    uint64_t bytes;     /* if !is_percent */
    uint32_t permyriad; /* if is_percent: 80% is 8000; 1 to 10000 */
};

/* False for a zeroed size, which means that the option was not given. */
static inline bool quantity_is_given(const struct quantity_size *size)
{
    return size->is_percent || size->bytes > 0;
}

/* Parses "512M", "24G", "1.5GiB", "4096" or "80%". K M G T P are powers of 1024, with or without
 * "B" or "iB", in any case. WHAT names the option in the error. 0, or -EINVAL/-ERANGE with an
 * error that has the value. 0 is an error, as no limit can be zero. */
int quantity_parse_size(const char *what, const char *s, struct quantity_size *ret,
                        struct err *err);

/* The size in bytes. A percentage is taken of WHOLE. */
uint64_t quantity_bytes(const struct quantity_size *size, uint64_t whole);

/* Parses "500ms", "10s", "5m", "2h", "1d" or "1.5s". A number without a unit is an error. MIN and
 * MAX are inclusive and named in the error. */
int quantity_parse_duration(const char *what, const char *s, uint64_t min_ns, uint64_t max_ns,
                            uint64_t *ret_ns, struct err *err);

/* Parses a whole decimal number in [MIN, MAX], with nothing before or after it. */
int quantity_parse_int(const char *what, const char *s, int64_t min, int64_t max, int64_t *ret,
                       struct err *err);
