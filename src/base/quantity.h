/* Sizes and times as people write them on a command line. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct err;

struct quantity_size {
    bool is_percent;
    uint64_t bytes;     /* when !is_percent */
    uint32_t permyriad; /* when is_percent: 80% is 8000; 1 to 10000 */
};

/* A zeroed one was not given. */
static inline bool quantity_is_given(const struct quantity_size *size)
{
    return size->is_percent || size->bytes > 0;
}

/* "512M", "24G", "1.5GiB", "4096", "80%": K M G T P are powers of 1024, with or without "B" or
 * "iB", in any case. WHAT names the option for the sentence. 0, or -EINVAL/-ERANGE with a
 * sentence that holds the value. A plain 0 is an error: no limit of ours can be nothing. */
int quantity_parse_size(const char *what, const char *s, struct quantity_size *ret,
                        struct err *err);

/* In bytes; a share is of WHOLE. */
uint64_t quantity_bytes(const struct quantity_size *size, uint64_t whole);

/* "500ms", "10s", "5m", "2h", "1d", "1.5s"; a bare number is an error (it would be a guess). MIN
 * and MAX are inclusive and named in the sentence. */
int quantity_parse_duration(const char *what, const char *s, uint64_t min_ns, uint64_t max_ns,
                            uint64_t *ret_ns, struct err *err);

/* A whole decimal number in [MIN, MAX], nothing before or behind it. */
int quantity_parse_int(const char *what, const char *s, int64_t min, int64_t max, int64_t *ret,
                       struct err *err);
