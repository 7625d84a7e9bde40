/* A full block, stored as columns in one zstd frame: a fraction of the size of its records.
 * Private to trace/. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trace/record.h"

enum {
    SEALED_CELLS_MAX = 1 << 22,
    SEALED_TICKS_MAX = 1 << 22,
    SEALED_STALE_FIELD =
        31, /* field number of the stale bits in the file, independent of the size of a sample */
};

/* Packs LEN bytes of records into columns and appends them to RET; *ret_raw_len is their length
 * before compression. 0, -ENOMEM, -EBADMSG if they are malformed, -EFBIG if there are too many. */
int sealed_pack(const void *records, size_t len, struct buf *ret, uint32_t *ret_raw_len);

struct sealed;
/* Unpacks and checks everything, so that reading the records afterwards cannot fail. -EBADMSG,
 * -ENOMEM. The bytes may be hostile; they are copied. */
int sealed_open(const void *stored, size_t stored_len, size_t raw_len, struct sealed **ret);
void sealed_free(struct sealed *s); /* NULL is fine */
/* The next record as it was packed (USE records are left out). 1, or 0 at the end. */
int sealed_next(struct sealed *s, struct record *ret);
