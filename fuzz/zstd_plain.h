/* Creates a zstd frame that contains the given bytes uncompressed. The parser thus reads exactly
 * the bytes that the fuzzer chose, and no time is spent on compression. */
#pragma once

#include "base/buf.h"

static inline void zstd_plain_add(struct buf *out, const void *plain, size_t len)
{
    enum { BLOCK_MAX = 128 << 10, ONE_SEGMENT_WITH_U32_LENGTH = 0xa0 };
    const char *from = plain;
    buf_add_u32le(out, 0xfd2fb528);
    buf_add_byte(out, ONE_SEGMENT_WITH_U32_LENGTH);
    buf_add_u32le(out, (uint32_t)len);
    do {
        size_t n = len < BLOCK_MAX ? len : BLOCK_MAX;
        uint32_t head = (uint32_t)n << 3 | (n == len);
        buf_add_byte(out, (uint8_t)head);
        buf_add_byte(out, (uint8_t)(head >> 8));
        buf_add_byte(out, (uint8_t)(head >> 16));
        buf_add(out, from, n);
        from += n;
        len -= n;
    } while (len > 0);
}
