/* Finds the intact blocks of a recording or heap history, which may be damaged. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "trace/block.h"

struct scan_block {
    uint64_t offset;     /* offset of the block's header */
    uint64_t bad_before; /* number of damaged bytes skipped before the block */
    struct block_head head;
};

/* The intact blocks of a file. A zeroed struct is empty. */
struct scan {
    struct scan_block *blocks; /* blocks in file order */
    size_t count, cap;
    uint64_t cut_bytes; /* number of bytes after the last intact block */
};

void scan_fini(struct scan *s);
/* Finds the blocks of the whole file and discards the result of earlier scans. The time is linear
 * in the file size for any content. Returns 0, -ENOMEM, or -errno of a read. */
int scan_file(struct scan *s, int fd);
/* Like scan_file, but keeps the first *KEEP blocks of an earlier scan and continues after them. If
 * the file now ends before the end of these blocks, scans the whole file and sets *KEEP to 0. */
int scan_file_from(struct scan *s, int fd, size_t *keep);
/* True if the file still contains the header of B unchanged. */
bool scan_has_block(int fd, const struct scan_block *b);
/* Loads the payload of B and checks its CRC again, because the file may have changed. Returns 0,
 * -EBADMSG or -ENOMEM. */
struct buf;
int scan_load(int fd, const struct scan_block *b, struct buf *ret);
