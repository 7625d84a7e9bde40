/* A full block as columns in one zstd frame: a fraction of its records' size. Private to trace/. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trace/record.h"

enum {
    SEALED_CELLS_MAX = 1 << 22,
    SEALED_TICKS_MAX = 1 << 22,
    SEALED_STALE_FIELD = 31, /* the stale bits' number in the file, whatever room a sample has */
};

/* Appends the LEN bytes of records, packed, to RET; *ret_raw_len is their length as columns.
 * 0, -ENOMEM, or -EBADMSG where they are not what record.h writes (-EFBIG: too many). */
int sealed_pack(const void *records, size_t len, struct buf *ret, uint32_t *ret_raw_len);

struct sealed;
/* Unpacks and checks all of it: what opens gives its records without failing. -EBADMSG, -ENOMEM.
 * The bytes may be hostile and need not stay. */
int sealed_open(const void *stored, size_t stored_len, size_t raw_len, struct sealed **ret);
void sealed_free(struct sealed *s); /* NULL is fine */
/* The records as they were packed, without USE: 1, or 0 at the end. */
int sealed_next(struct sealed *s, struct record *ret);
