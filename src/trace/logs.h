/* The job's output in its run folder. Without a size cap it is one file, log.txt. With a cap,
 * log.txt holds the first eighth of the cap and log.OFFSET.txt are later pieces of the same size,
 * starting at that offset of the whole output; the oldest of these are removed. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/sink.h"

struct logs;

enum { LOGS_PIECES = 8, LOGS_CAP_MIN = 64 << 10 };

/* Creates log.txt in DIRFD, which must not exist yet. A thread of its own writes it. CAP_BYTES is
 * the size of all pieces together, at least LOGS_CAP_MIN; 0 means one file without limit. At most
 * MEMORY_BYTES are queued for the disk. DIRFD is borrowed. 0 or -errno. */
int logs_open(int dirfd, uint64_t cap_bytes, size_t memory_bytes, struct logs **ret);
/* Appends output. 0; or -ENOBUFS or -ENOMEM, and the bytes are dropped without leaving a gap in
 * the offsets. */
int logs_add(struct logs *l, const void *data, size_t len);
uint64_t logs_bytes(const struct logs *l); /* bytes accepted in total */
/* bytes that are certain to be visible to other processes */
uint64_t logs_on_disk(const struct logs *l);
const char *logs_piece_name(const struct logs *l); /* the file being written */
struct sink *logs_sink(const struct logs *l);      /* borrowed; for its status and sink_wait */
int logs_close(struct logs *l, uint64_t wait_ns);

/* ---- reading, also while the log is being written ---- */

/* One file of the log. */
struct logs_piece {
    int fd;         /* closed by the caller */
    uint64_t start; /* offset of its first byte */
    uint64_t bytes; /* its current size */
};
/* Finds the piece that contains OFFSET, or the next one after it. -ENODATA: nothing has been
 * written at or after OFFSET yet. *RET_END (may be NULL) is set to the end of the log in either
 * case. */
int logs_find(int dirfd, uint64_t offset, struct logs_piece *ret, uint64_t *ret_end);
uint64_t logs_end(int dirfd); /* the end of the log; 0 if it is empty */
/* Reads at most SIZE bytes from OFFSET on, all from one piece. *RET_AT is where they begin:
 * OFFSET, or the next offset that still exists. Returns the number of bytes; 0 if nothing has been
 * written there yet (then *ret_at is the end of the log, or OFFSET if that is beyond it); or
 * -errno. */
ssize_t logs_read(int dirfd, uint64_t offset, void *buf, size_t size, uint64_t *ret_at);
