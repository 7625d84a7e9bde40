/* A full block, stored as columns in one zstd frame. The frame is much smaller than the records.
 * Used only in trace/. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trace/record.h"

enum {
    SEALED_CELLS_MAX = 1 << 22,
    SEALED_TICKS_MAX = 1 << 22,
    /* field number of the stale bits in the file format, which does not depend on
     * SAMPLE_FIELDS_MAX */
    SEALED_STALE_FIELD = 31,
};

/* Packs LEN bytes of records into columns and appends them to RET. Sets *ret_raw_len to the size of
 * the columns before compression. Returns 0, -ENOMEM, -EBADMSG if the records are malformed, or
 * -EFBIG if they contain too many readings or ticks. */
int sealed_pack(const void *records, size_t len, struct buf *ret, uint32_t *ret_raw_len);

struct sealed;
/* Unpacks and checks the whole block, so that reading its records afterwards cannot fail. The input
 * may be hostile; it is copied. Returns 0, -EBADMSG or -ENOMEM. */
int sealed_open(const void *stored, size_t stored_len, size_t raw_len, struct sealed **ret);
void sealed_free(struct sealed *s); /* S may be NULL */
/* Gets the next record, in the order in which the records were packed. USE records are not
 * returned. Returns 1, or 0 at the end. */
int sealed_next(struct sealed *s, struct record *ret);
