/* Parses Python's line tables: the pairs of 3.9 (lnotab) and of 3.10, and the locations of 3.11
 * and later. */
#include "profile/pylines.h"

#include <errno.h>

#include "base/buf.h"

enum {
    VERSION_3_9 = 0x0309,
    VERSION_3_10 = 0x030a,
    VERSION_3_11 = 0x030b,
    /* Last supported version. Later versions may have changed the format again. */
    VERSION_LAST = 0x030e,
    CODE_UNIT_BYTES = 2,
    NO_LINE_3_10 = -128,
};

/* Checks the range of a line number, which the interpreter stores as an int. */
static int line_of(int64_t line, uint32_t *ret)
{
    if (line > INT32_MAX || line < INT32_MIN)
        return -EBADMSG;
    if (line < 1)
        return -ENODATA;
    *ret = (uint32_t)line;
    return 0;
}

/* Parses pairs of address and line increments. The last line extends to the end of the code. */
static int find_3_9(struct cur *c, int64_t line, uint32_t offset, uint32_t *ret)
{
    uint64_t address = 0;
    while (cur_left(c)) {
        address += cur_byte(c);
        int8_t delta = (int8_t)cur_byte(c);
        if (c->bad)
            return -EBADMSG;
        if (address > offset)
            break;
        line += delta;
    }
    return line_of(line, ret);
}

/* Parses pairs, each the length of a range and its line increment. A range may have no line. */
static int find_3_10(struct cur *c, int64_t line, uint32_t offset, uint32_t *ret)
{
    uint64_t end = 0;
    while (cur_left(c)) {
        end += cur_byte(c);
        int8_t delta = (int8_t)cur_byte(c);
        if (c->bad)
            return -EBADMSG;
        if (delta != NO_LINE_3_10)
            line += delta;
        if (offset < end)
            return delta == NO_LINE_3_10 ? -ENODATA : line_of(line, ret);
    }
    return -ENODATA;
}

/* Reads a number with six bits per byte, the lowest first; bit 6 is set if more bytes follow. */
static uint32_t location_varint(struct cur *c)
{
    uint64_t v = 0;
    uint8_t byte;
    unsigned shift = 0;
    do {
        byte = cur_byte(c);
        if (c->bad || shift > 30) {
            c->bad = true;
            return 0;
        }
        v |= (uint64_t)(byte & 63U) << shift;
        shift += 6;
    } while (byte & 64U);
    if (v > UINT32_MAX)
        c->bad = true;
    return (uint32_t)v;
}

static int64_t location_signed(struct cur *c)
{
    uint32_t v = location_varint(c);
    return v & 1 ? -(int64_t)(v >> 1) : (int64_t)(v >> 1);
}

enum { FORM_LINE_0 = 10, FORM_LINE_2 = 12, FORM_NO_COLUMNS = 13, FORM_LONG = 14, FORM_NONE = 15 };

static int64_t location_line_delta(struct cur *c, unsigned form)
{
    int64_t delta = 0;
    if (form == FORM_NO_COLUMNS || form == FORM_LONG)
        delta = location_signed(c);
    else if (form >= FORM_LINE_0 && form <= FORM_LINE_2)
        delta = (int64_t)form - FORM_LINE_0;
    while (!c->bad && cur_left(c) && !(*c->p & 0x80U))
        c->p++; /* skip the columns */
    return delta;
}

static int find_3_11(struct cur *c, int64_t line, uint32_t offset, uint32_t *ret)
{
    uint64_t end = 0;
    while (cur_left(c)) {
        uint8_t first = cur_byte(c);
        unsigned form = first >> 3 & 15U;
        if (!(first & 0x80U))
            return -EBADMSG;
        end += ((first & 7U) + 1U) * CODE_UNIT_BYTES;
        line += location_line_delta(c, form);
        if (c->bad)
            return -EBADMSG;
        if (offset < end)
            return form == FORM_NONE ? -ENODATA : line_of(line, ret);
    }
    return -ENODATA;
}

int pylines_find(const void *table, size_t len, uint32_t version, uint32_t first_line,
                 uint32_t offset, uint32_t *ret_line)
{
    struct cur c = cur_of(table, len);
    uint32_t minor = version >> 16;
    if (minor < VERSION_3_9 || minor > VERSION_LAST)
        return -ENOTSUP;
    if (len == 0)
        return -ENODATA;
    if (minor >= VERSION_3_11)
        return find_3_11(&c, first_line, offset, ret_line);
    return minor == VERSION_3_10 ? find_3_10(&c, first_line, offset, ret_line)
                                 : find_3_9(&c, first_line, offset, ret_line);
}
