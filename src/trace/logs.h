/* The job's output in its run folder. Without a size cap, it is one file, log.txt. With a cap,
 * log.txt has the first eighth of the cap. Later pieces have the same size and are called
 * log.OFFSET.txt, where OFFSET is the position of the piece in the whole output. The oldest of the
 * later pieces are removed when the cap is reached. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/sink.h"

struct logs;

enum { LOGS_PIECES = 8, LOGS_CAP_MIN = 64 << 10 };

/* Creates log.txt in DIRFD, where it must not exist yet, and a thread that writes it. CAP_BYTES is
 * the size of all pieces together, at least LOGS_CAP_MIN; 0 means one file without limit. At most
 * MEMORY_BYTES are queued for the disk. DIRFD must stay open. Returns 0 or -errno. */
int logs_open(int dirfd, uint64_t cap_bytes, size_t memory_bytes, struct logs **ret);
/* Appends output. Returns 0, or -ENOBUFS or -ENOMEM if the bytes were dropped; offsets do not count
 * dropped bytes. */
int logs_add(struct logs *l, const void *data, size_t len);
uint64_t logs_bytes(const struct logs *l); /* total number of bytes accepted */
/* number of bytes that other processes can certainly read */
uint64_t logs_on_disk(const struct logs *l);
const char *logs_piece_name(const struct logs *l); /* name of the file being written */
/* the log's sink, for its status and sink_wait; not owned by the caller */
struct sink *logs_sink(const struct logs *l);
int logs_close(struct logs *l, uint64_t wait_ns);

/* ---- reading, also while the log is being written ---- */

/* One file of the log. */
struct logs_piece {
    int fd;         /* fd of the piece, which the caller closes */
    uint64_t start; /* offset of the piece's first byte in the log */
    uint64_t bytes; /* current size of the piece */
};
/* Finds the piece that contains OFFSET, or else the next piece after OFFSET. Returns -ENODATA if
 * the log ends at or before OFFSET. In either case, sets *RET_END (may be NULL) to the end of the
 * log. */
int logs_find(int dirfd, uint64_t offset, struct logs_piece *ret, uint64_t *ret_end);
uint64_t logs_end(int dirfd); /* the offset of the end of the log; 0 if it is empty */
/* Reads at most SIZE bytes from OFFSET on, all from one piece. Sets *RET_AT to the offset of the
 * first byte: OFFSET, or the next offset whose piece still exists. Returns the number of bytes or
 * -errno. At the end of the log, returns 0 and sets *RET_AT to that end, or to OFFSET if OFFSET is
 * larger. */
ssize_t logs_read(int dirfd, uint64_t offset, void *buf, size_t size, uint64_t *ret_at);
