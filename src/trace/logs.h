/* The job's output in its run folder. Without a size limit, it is one file, log.txt. With a limit,
 * log.txt contains the first eighth of the limit. Later pieces have the same size and are called
 * log.OFFSET.txt, where OFFSET is the position of the piece in the whole output. Once the limit is
 * reached, each new piece replaces the oldest piece other than log.txt. */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "trace/sink.h"

struct logs;

enum { LOGS_PIECES = 8, LOGS_CAP_MIN = 64 << 10 };

/* Creates log.txt in DIRFD, where it must not exist yet, and a thread that writes it. CAP_BYTES is
 * the maximum size of all pieces together, at least LOGS_CAP_MIN; 0 means one file without limit.
 * At most MEMORY_BYTES of output are queued for the disk. DIRFD must stay open. Returns 0 or
 * -errno. */
int logs_open(int dirfd, uint64_t cap_bytes, size_t memory_bytes, struct logs **ret);
/* Appends output. Returns 0, or -ENOBUFS or -ENOMEM if the rest of the output was dropped. Offsets
 * do not include dropped bytes. */
int logs_add(struct logs *l, const void *data, size_t len);
uint64_t logs_bytes(const struct logs *l); /* total number of bytes accepted */
/* number of bytes that are certainly in the files, so that other processes can read them */
uint64_t logs_on_disk(const struct logs *l);
const char *logs_piece_name(const struct logs *l); /* name of the newest piece */
/* the log's sink, for its status and for sink_wait; owned by the log */
struct sink *logs_sink(const struct logs *l);
int logs_close(struct logs *l, uint64_t wait_ns);

/* ---- reading, also while the log is being written ---- */

struct logs_piece {
    int fd;         /* fd of the piece, which the caller closes */
    uint64_t start; /* offset of the piece's first byte in the log */
    uint64_t bytes; /* current size of the piece */
};
/* Finds the piece that contains OFFSET. If that piece was removed, finds the oldest piece after it.
 * Returns 0, -ENODATA if the log ends at or before OFFSET, or -errno. Sets *RET_END (may be NULL)
 * to the end of the log, also for -ENODATA. */
int logs_find(int dirfd, uint64_t offset, struct logs_piece *ret, uint64_t *ret_end);
uint64_t logs_end(int dirfd); /* offset of the end of the log; 0 if it is empty */
/* Reads up to SIZE bytes from OFFSET, all from one piece. Sets *RET_AT to the offset of the first
 * byte: OFFSET, or if its piece was removed, the start of the next piece. Returns the number of
 * bytes or -errno. At the end of the log, returns 0 and sets *RET_AT to that end, or to OFFSET if
 * OFFSET is larger. */
ssize_t logs_read(int dirfd, uint64_t offset, void *buf, size_t size, uint64_t *ret_at);
