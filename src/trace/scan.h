/* Finds the intact blocks of a damaged file, which is a recording or a heap history. */
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

/* A zeroed struct has no blocks. */
struct scan {
    struct scan_block *blocks; /* blocks in the order of the file */
    size_t count, cap;
    uint64_t cut_bytes; /* number of bytes after the last intact block */
};

void scan_fini(struct scan *s);
/* Finds the blocks of the whole file, in place of those of an earlier scan. The time is linear in
 * the file's size, whatever the file contains. Returns 0, -ENOMEM, or -errno of a read. */
int scan_file(struct scan *s, int fd);
/* Like scan_file, but keeps the first KEEP blocks of the earlier scan and continues after them. If
 * the file has become shorter than these blocks, scans the whole file. */
int scan_file_from(struct scan *s, int fd, size_t keep);
/* True if the header of B is unchanged in the file. */
bool scan_has_block(int fd, const struct scan_block *b);
/* Loads the payload of B and checks it again, because the file may have changed. Returns 0,
 * -EBADMSG or -ENOMEM. */
struct buf;
int scan_load(int fd, const struct scan_block *b, struct buf *ret);
