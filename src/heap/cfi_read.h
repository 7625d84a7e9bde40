/* Decodes integers in the untrusted bytes of .eh_frame. Reading past the end yields zeros and marks
 * the cursor as failed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "heap/cfi.h"

struct cfi_cursor {
    const struct cfi_section *s;
    size_t at, end; /* offsets of the cursor and of its end in the section */
    bool is_bad;
};

static inline struct cfi_cursor cfi_cursor_at(const struct cfi_section *s, uint64_t address)
{
    uint64_t at = address - s->address;

    if (address < s->address || at > s->len)
        return (struct cfi_cursor){.s = s, .is_bad = true};
    return (struct cfi_cursor){.s = s, .at = (size_t)at, .end = s->len};
}

static inline uint64_t cfi_address(const struct cfi_cursor *c)
{
    return c->s->address + c->at;
}

/* Confines the cursor to the next LEN bytes. */
static inline void cfi_narrow(struct cfi_cursor *c, uint64_t len)
{
    if (len > c->end - c->at)
        c->is_bad = true;
    else
        c->end = c->at + (size_t)len;
}

static inline void cfi_skip(struct cfi_cursor *c, uint64_t len)
{
    if (len > c->end - c->at) {
        c->is_bad = true;
        c->at = c->end;
    } else {
        c->at += (size_t)len;
    }
}

/* Reads an integer of SIZE 1, 2, 4 or 8 bytes; little-endian, as x86-64 is. */
static inline uint64_t cfi_unsigned(struct cfi_cursor *c, size_t size)
{
    uint64_t v = 0;

    if (c->is_bad || size > c->end - c->at) {
        c->is_bad = true;
        c->at = c->end;
        return 0;
    }
    for (size_t i = 0; i < size; i++)
        v |= (uint64_t)c->s->bytes[c->at + i] << (8 * i);
    c->at += size;
    return v;
}

static inline int64_t cfi_signed(struct cfi_cursor *c, size_t size)
{
    unsigned shift = 64 - 8 * (unsigned)size;

    return (int64_t)(cfi_unsigned(c, size) << shift) >> shift;
}

static inline uint8_t cfi_byte(struct cfi_cursor *c)
{
    return (uint8_t)cfi_unsigned(c, 1);
}

/* Reads a LEB128 number; bits past the 64th are dropped. Sets *RET_BYTE to the last byte of the
 * number, and *RET_SHIFT to the number of bits read. */
static inline uint64_t cfi_leb(struct cfi_cursor *c, uint8_t *ret_byte, unsigned *ret_shift)
{
    uint64_t v = 0;
    uint8_t byte;
    unsigned shift = 0;

    do {
        byte = cfi_byte(c);
        if (shift < 64)
            v |= (uint64_t)(byte & 0x7f) << shift;
        shift += shift < 64 ? 7 : 0;
    } while (byte & 0x80);
    *ret_byte = byte;
    *ret_shift = shift;
    return v;
}

static inline uint64_t cfi_uleb(struct cfi_cursor *c)
{
    uint8_t byte;
    unsigned shift;
    return cfi_leb(c, &byte, &shift);
}

static inline int64_t cfi_sleb(struct cfi_cursor *c)
{
    uint8_t byte;
    unsigned shift;
    uint64_t v = cfi_leb(c, &byte, &shift);
    if ((byte & 0x40) && shift < 64)
        v |= ~UINT64_C(0) << shift;
    return (int64_t)v;
}
