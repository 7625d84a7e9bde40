/* Compresses the payload of a block into one zstd frame, which contains the size of its content. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buf;

/* Compression level, and log2 of the window and of each table, which determine the memory use. */
struct pack_effort {
    int level, window_log, table_log;
};

/* Compresses LEN bytes and appends the result. Returns 0 or -ENOMEM. */
int pack_add(struct buf *out, const void *plain, size_t len, const struct pack_effort *effort);
/* Unpacks a frame that must contain exactly RAW_LEN (not 0) bytes; the caller frees the result.
 * Returns 0, -EBADMSG or -ENOMEM. */
int pack_open(const void *stored, size_t stored_len, size_t raw_len, char **ret);
