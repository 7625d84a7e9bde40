/* A growable byte buffer, and encoding of the variable-length integers used in recordings. */
#pragma once

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A zeroed struct is a valid empty buffer. If the buffer fails to grow, `failed` is set and later
 * appends do nothing. The caller therefore needs to check `failed` only once, at the end. */
struct buf {
    char *data;
    size_t len;
    size_t cap;
    bool failed;
};

void buf_fini(struct buf *b); /* frees the data and zeroes B; accepts a zeroed buffer */
/* frees a local buffer at the end of its scope */
#define AUTO_BUF __attribute__((cleanup(buf_fini)))
/* Empties the buffer and clears `failed`; keeps the allocated memory. */
void buf_clear(struct buf *b);
int buf_reserve(struct buf *b, size_t more); /* returns 0 or -ENOMEM; may move the data */
void buf_add(struct buf *b, const void *data, size_t len);
void buf_add_str(struct buf *b, const char *s);
void buf_add_byte(struct buf *b, uint8_t byte);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
/* Returns the content as a C string, or "" if the buffer is empty or failed. `len` does not include
 * the terminating NUL. */
const char *buf_str(struct buf *b);

/* Appends V as LEB128, at most 10 bytes. */
void buf_add_varint(struct buf *b, uint64_t v);
void buf_add_zigzag(struct buf *b, int64_t v);
/* Appends LEN as a varint, then LEN bytes of DATA. */
void buf_add_blob(struct buf *b, const void *data, size_t len);
void buf_add_u16le(struct buf *b, uint16_t v);
void buf_add_u32le(struct buf *b, uint32_t v);
void buf_add_u64le(struct buf *b, uint64_t v);

/* A cursor over untrusted bytes. The first short or malformed read sets `bad`. After that, every
 * get function returns 0 or an empty blob, so the caller needs to check `bad` only once, at the
 * end. */
struct cur {
    const uint8_t *p;
    const uint8_t *end;
    bool bad;
};

static inline struct cur cur_of(const void *data, size_t len)
{
    const uint8_t *p = data;
    return (struct cur){p, len ? p + len : p, false}; /* adding 0 to NULL is undefined in C */
}
static inline size_t cur_left(const struct cur *c)
{
    return (size_t)(c->end - c->p);
}
uint64_t cur_varint(struct cur *c);
int64_t cur_zigzag(struct cur *c);
uint8_t cur_byte(struct cur *c);
uint16_t cur_u16le(struct cur *c);
uint32_t cur_u32le(struct cur *c);
uint64_t cur_u64le(struct cur *c);
/* Reads a length and that many bytes. The result points into the bytes that the cursor reads. If
 * the cursor is bad, *ret_len is 0 and the result is not NULL. */
const char *cur_blob(struct cur *c, size_t *ret_len);

/* Returns the CRC-32C (Castagnoli) of DATA. CRC is the result for the preceding bytes, or 0 if
 * there are none. */
uint32_t crc32c(uint32_t crc, const void *data, size_t len);
