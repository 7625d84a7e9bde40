/* heap.PID.ebbheap: the history of one process's heap in the run folder. Append-only blocks, each
 * whole or ignored: what is new in modules, codes, texts, nodes and sites; a reading (what each
 * site holds, as changes since the last one); a snapshot (every live sample). docs/heap-format.md.
 *
 * Its size hardly depends on the length of the run: readings come every max(2 s, 1/500 of the run)
 * and snapshots at most every 1/16 of it, so that the number of both grows with the logarithm of
 * its length; both get rarer by half with every eighth of STORE_BYTES_MAX, and a file of that size
 * takes the last reading alone. */
#pragma once

#include <stdint.h>

#include "profile/look.h"
#include "profile/profile.h"

struct store_writer;

enum {
    STORE_SNAPSHOTS = 64, /* of one profile in memory: of more, every second, third, … is read */
    STORE_BYTES_MAX = 48 << 20,
};

/* How long after one reading the next is due, ELAPSED_NS into the life of the process, with a file
 * of SIZE_BYTES. */
uint64_t store_interval_ns(uint64_t elapsed_ns, uint64_t size_bytes);

/* Makes NAME in DIRFD (-EEXIST: it is there) for LOOK, which must outlive the writer. Written by a
 * thread of its own (trace/sink.h). */
int store_create(int dirfd, const char *name, const struct look *look, struct store_writer **ret,
                 struct err *err);

enum store_why {
    STORE_DUE,   /* a snapshot comes with it if live bytes have changed by 10 % since the last */
    STORE_EPOCH, /* the end of an epoch, or of the first step: a snapshot comes with it */
    STORE_ASKED, /* somebody looks: as fresh as it can be without the file growing by their looking,
                  * a snapshot included */
    STORE_LAST,  /* the process has gone: reading and snapshot in any case */
};
/* Takes a reading now. HAS_STEP false: no marks. The total of live bytes is told (where nothing was
 * read, because it was asked for again too soon, that of the last reading). 0, -ENOMEM, or
 * -ENOBUFS: the disk does not keep up, and the next reading is whole. */
int store_take(struct store_writer *w, uint64_t now_ns, bool has_step, int64_t step,
               enum store_why why, double *ret_live_bytes);
/* Waits for the disk at most WAIT_NS: 0, -ETIMEDOUT, or the first error. */
int store_flush(struct store_writer *w, uint64_t wait_ns);
/* What the disk said when it first refused; 0: it never did. */
int store_error(const struct store_writer *w);
uint64_t store_size_bytes(const struct store_writer *w);
/* 0, the first error, or -ETIMEDOUT. NULL is fine. */
int store_writer_close(struct store_writer *w, uint64_t wait_ns);

/* All of a file; damaged blocks are left out and counted. -EBADMSG: nothing of it is readable;
 * -ENOTSUP: it is of another version. RET_DAMAGE may be NULL. */
struct store_damage {
    uint64_t bad_bytes, cut_bytes;
};
int store_read(int fd, struct profile **ret, struct store_damage *ret_damage, struct err *err);
/* The same from bytes: what is fuzzed. */
int store_parse(const void *bytes, size_t len, struct profile **ret,
                struct store_damage *ret_damage, struct err *err);
