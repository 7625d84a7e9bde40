/* The job's output in its run folder: log.txt, and with a cap its later pieces, of which the newest
 * are kept. Bytes are named by their offset in all that the job ever wrote:
 *
 *     log.txt           the first eighth of the cap: how it began
 *     log.OFFSET.txt    pieces of the same size, from that offset on; the oldest make room
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/sink.h"

struct logs;

enum { LOGS_PIECES = 8, LOGS_CAP_MIN = 64 << 10 };

/* Begins log.txt in DIRFD, which must not be there yet, written by a thread of its own. CAP_BYTES:
 * all pieces together, at least LOGS_CAP_MIN; 0: one file without end. At most MEMORY_BYTES wait
 * for the disk. DIRFD is borrowed. 0 or -errno. */
int logs_open(int dirfd, uint64_t cap_bytes, size_t memory_bytes, struct logs **ret);
/* 0, or -ENOBUFS and -ENOMEM: these bytes are left out, as if they had never been written. */
int logs_add(struct logs *l, const void *data, size_t len);
uint64_t logs_bytes(const struct logs *l);         /* taken in all */
uint64_t logs_on_disk(const struct logs *l);       /* of these, surely to be read by others */
const char *logs_piece_name(const struct logs *l); /* the file that is written now */
struct sink *logs_sink(const struct logs *l);      /* borrowed: its status, to wait for it */
int logs_close(struct logs *l, uint64_t wait_ns);

/* ---- reading, also while it is written ---- */

/* What there is of one file of the log. */
struct logs_piece {
    int fd;         /* the caller's */
    uint64_t start; /* offset of its first byte */
    uint64_t bytes; /* in it now */
};
/* The piece that holds OFFSET, or the next one behind it. -ENODATA: there is nothing from there on
 * (yet). *RET_END, if not NULL, gets the end of all that is there in either case. */
int logs_find(int dirfd, uint64_t offset, struct logs_piece *ret, uint64_t *ret_end);
uint64_t logs_end(int dirfd); /* of all that is there; 0: nothing yet */
/* At most SIZE bytes from OFFSET on, of one piece. *RET_AT is where they begin: OFFSET, or the next
 * offset that exists, where that was dropped. Returns how many; 0: nothing there (yet), and *ret_at
 * is the end of what is there, or OFFSET if that is behind it; or -errno. */
ssize_t logs_read(int dirfd, uint64_t offset, void *buf, size_t size, uint64_t *ret_at);
