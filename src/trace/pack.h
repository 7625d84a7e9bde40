/* The payload of a block as one zstd frame that knows its content's size. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buf;

/* How hard to try, and with how much memory: log2 of the window and of each table. */
struct pack_effort {
    int level, window_log, table_log;
};

/* Appends LEN bytes, packed: 0 or -ENOMEM. */
int pack_add(struct buf *out, const void *plain, size_t len, const struct pack_effort *effort);
/* The content of a frame that must hold exactly RAW_LEN (not 0) bytes, to be freed by the caller.
 * 0, -EBADMSG, -ENOMEM. */
int pack_open(const void *stored, size_t stored_len, size_t raw_len, char **ret);
