/* Where the whole blocks of a file are, however damaged it is. For recordings and for
 * histories of heaps. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "trace/block.h"

struct scan_block {
    uint64_t offset;     /* of its head */
    uint64_t bad_before; /* bytes passed over to get here */
    struct block_head head;
};

/* Zeroed is a valid scan that has seen nothing. */
struct scan {
    struct scan_block *blocks; /* in order of the file */
    size_t count, cap;
    uint64_t cut_bytes; /* behind the last whole block */
};

void scan_fini(struct scan *s);
/* Forgets what lies at OFFSET and behind and looks there again, up to the end of the file. Work
 * is linear in the file's size, whatever it holds. 0, -ENOMEM or -errno of reading. */
int scan_from(struct scan *s, int fd, uint64_t offset);
/* The payload of B, checked once more: a living file may have changed. 0, -EBADMSG, -ENOMEM. */
struct buf;
int scan_load(int fd, const struct scan_block *b, struct buf *ret);
