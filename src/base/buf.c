/* A growable buffer, encoding and decoding of integers, and CRC-32C. */
#include "base/buf.h"

#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VARINT_MAX = 10, CAP_MIN = 64 };

void buf_fini(struct buf *b)
{
    free(b->data);
    *b = (struct buf){0};
}

void buf_clear(struct buf *b)
{
    b->len = 0;
    b->failed = false;
}

int buf_reserve(struct buf *b, size_t more)
{
    if (b->failed)
        return -ENOMEM;
    if (more <= b->cap - b->len)
        return 0;
    /* No object may be larger than PTRDIFF_MAX. This check also keeps the additions below from
     * overflowing. */
    if (more > (size_t)PTRDIFF_MAX - b->len) {
        b->failed = true;
        return -ENOMEM;
    }
    size_t need = b->len + more;
    size_t cap = b->cap + b->cap / 2;
    if (cap < CAP_MIN)
        cap = CAP_MIN;
    if (cap < need || cap > (size_t)PTRDIFF_MAX)
        cap = need;
    char *data = realloc(b->data, cap);
    if (!data) {
        b->failed = true;
        return -ENOMEM;
    }
    b->data = data;
    b->cap = cap;
    return 0;
}

void buf_add(struct buf *b, const void *data, size_t len)
{
    if (len == 0 || buf_reserve(b, len) < 0)
        return;
    memcpy(b->data + b->len, data, len);
    b->len += len;
}

void buf_add_str(struct buf *b, const char *s)
{
    buf_add(b, s, strlen(s));
}

void buf_add_byte(struct buf *b, uint8_t byte)
{
    buf_add(b, &byte, 1);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
    if (buf_reserve(b, 1) < 0)
        return;
    va_list again;
    va_copy(again, ap);
    size_t room = b->cap - b->len;
    int n = vsnprintf(b->data + b->len, room, fmt, ap);
    if (n < 0)
        b->failed = true;
    else if ((size_t)n < room || buf_reserve(b, (size_t)n + 1) == 0) {
        if ((size_t)n >= room)
            vsnprintf(b->data + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    buf_vprintf(b, fmt, ap);
    va_end(ap);
}

const char *buf_str(struct buf *b)
{
    if (b->failed || b->len == 0 || buf_reserve(b, 1) < 0)
        return "";
    b->data[b->len] = '\0';
    return b->data;
}

void buf_add_varint(struct buf *b, uint64_t v)
{
    uint8_t bytes[VARINT_MAX];
    size_t n = 0;
    while (v >= 0x80) {
        bytes[n++] = (uint8_t)(v | 0x80);
        v >>= 7;
    }
    bytes[n++] = (uint8_t)v;
    buf_add(b, bytes, n);
}

void buf_add_zigzag(struct buf *b, int64_t v)
{
    uint64_t sign = v < 0 ? UINT64_MAX : 0;
    buf_add_varint(b, ((uint64_t)v << 1) ^ sign);
}

void buf_add_blob(struct buf *b, const void *data, size_t len)
{
    buf_add_varint(b, len);
    buf_add(b, data, len);
}

void buf_add_u16le(struct buf *b, uint16_t v)
{
    uint16_t le = htole16(v);
    buf_add(b, &le, sizeof le);
}

void buf_add_u32le(struct buf *b, uint32_t v)
{
    uint32_t le = htole32(v);
    buf_add(b, &le, sizeof le);
}

void buf_add_u64le(struct buf *b, uint64_t v)
{
    uint64_t le = htole64(v);
    buf_add(b, &le, sizeof le);
}

/* Marks the cursor as bad and moves it to the end, so that loops with the condition cur_left(c) > 0
 * end. */
static void cur_fail(struct cur *c)
{
    c->bad = true;
    c->p = c->end;
}

static bool cur_take(struct cur *c, void *ret, size_t len)
{
    if (c->bad || cur_left(c) < len) {
        cur_fail(c);
        return false;
    }
    memcpy(ret, c->p, len);
    c->p += len;
    return true;
}

uint64_t cur_varint(struct cur *c)
{
    uint64_t v = 0;
    for (unsigned i = 0; i < VARINT_MAX && !c->bad && c->p < c->end; i++) {
        uint8_t byte = *c->p++;
        if (i == VARINT_MAX - 1 && byte > 1)
            break; /* the varint has more than 64 bits or an eleventh byte */
        v |= (uint64_t)(byte & 0x7F) << (7 * i);
        if (byte < 0x80)
            return v;
    }
    cur_fail(c);
    return 0;
}

int64_t cur_zigzag(struct cur *c)
{
    uint64_t v = cur_varint(c);
    uint64_t sign = (v & 1) ? UINT64_MAX : 0;
    return (int64_t)((v >> 1) ^ sign);
}

uint8_t cur_byte(struct cur *c)
{
    uint8_t v = 0;
    cur_take(c, &v, sizeof v);
    return v;
}

uint16_t cur_u16le(struct cur *c)
{
    uint16_t v = 0;
    cur_take(c, &v, sizeof v);
    return le16toh(v);
}

uint32_t cur_u32le(struct cur *c)
{
    uint32_t v = 0;
    cur_take(c, &v, sizeof v);
    return le32toh(v);
}

uint64_t cur_u64le(struct cur *c)
{
    uint64_t v = 0;
    cur_take(c, &v, sizeof v);
    return le64toh(v);
}

const char *cur_blob(struct cur *c, size_t *ret_len)
{
    *ret_len = 0;
    uint64_t len = cur_varint(c);
    if (c->bad || len > cur_left(c)) {
        cur_fail(c);
        return "";
    }
    const char *data = (const char *)c->p;
    c->p += len;
    *ret_len = (size_t)len;
    return data;
}

/* crc32c processes eight bytes at a time. crc_table[k][b] is what byte b contributes to the CRC if
 * k more of the eight bytes follow b. */
static uint32_t crc_table[8][256];

/* The table is filled by a constructor, because filling it at first use would be a data race. */
__attribute__((constructor)) static void crc_table_fill(void)
{
    for (uint32_t b = 0; b < 256; b++) {
        uint32_t crc = b;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ ((crc & 1) ? UINT32_C(0x82F63B78) : 0);
        crc_table[0][b] = crc;
    }
    for (uint32_t b = 0; b < 256; b++) {
        for (int k = 1; k < 8; k++) {
            uint32_t before = crc_table[k - 1][b];
            crc_table[k][b] = (before >> 8) ^ crc_table[0][before & 0xFF];
        }
    }
}

uint32_t crc32c(uint32_t crc, const void *data, size_t len)
{
    const uint8_t *p = data;
    crc = ~crc;
    for (; len >= 8; len -= 8, p += 8) {
        uint64_t group;
        memcpy(&group, p, sizeof group);
        group = le64toh(group) ^ crc;
        crc = 0;
        for (unsigned k = 0; k < 8; k++)
            crc ^= crc_table[7 - k][(group >> (8 * k)) & 0xFF];
    }
    for (; len > 0; len--, p++)
        crc = (crc >> 8) ^ crc_table[0][(crc ^ *p) & 0xFF];
    return ~crc;
}
