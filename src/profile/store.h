/* heap.PID.ebbheap: the history of one process's heap in the run folder. It consists of append-only
 * blocks: new modules, codes, texts, nodes and call sites; a reading (live bytes of each call site,
 * as changes since the last one); a snapshot (every live sample). A reader uses intact blocks and
 * ignores others. docs/reference/heap-format.md describes the format.
 *
 * The size hardly depends on the length of the run. A reading is due every second in the first
 * minute, then every 2 s or every 1/500 of the run, whichever is longer. A snapshot is due after
 * 1/16 of the run at the earliest, so the number of snapshots grows with the logarithm of the run's
 * length. Readings and snapshots become half as frequent each time the file grows by an eighth of
 * STORE_BYTES_MAX. Once the file has STORE_BYTES_MAX bytes, only the last reading is added. */
#pragma once

#include <stdint.h>

#include "profile/live_table.h"
#include "profile/profile.h"

struct store_writer;

enum {
    /* Maximum number of snapshots in memory per profile. If the file has more, only every second,
     * third, … is read. */
    STORE_SNAPSHOTS = 64,
    STORE_BYTES_MAX = 48 << 20,
};

/* Returns the time from one reading to the next for a process that has run for ELAPSED_NS and whose
 * file has SIZE_BYTES. */
uint64_t store_interval_ns(uint64_t elapsed_ns, uint64_t size_bytes);

/* Creates NAME in DIRFD for TABLE, which must outlive the writer. Returns -EEXIST if NAME exists.
 * A separate thread writes the file (trace/sink.h). */
int store_create(int dirfd, const char *name, const struct live_table *table,
                 struct store_writer **ret, struct err *err);

enum store_why {
    /* A reading is due. A snapshot is taken too if live bytes have changed by 10 % since the last
     * snapshot. */
    STORE_DUE,
    STORE_EPOCH, /* An epoch or the first step has ended, so a snapshot is taken. */
    /* A fresh reading with a snapshot was requested. The request is skipped if the last reading is
     * recent, so that frequent requests do not grow the file. */
    STORE_ASKED,
    STORE_LAST, /* the process has exited; a reading and a snapshot are always taken */
};
/* Takes a reading now. HAS_STEP is false if there are no marks. Sets *ret_live_bytes to the live
 * bytes of host memory at this reading, or at the previous reading if this one is skipped because
 * it was requested too soon. Returns 0, -ENOMEM, or -ENOBUFS if the disk is too slow. After
 * -ENOBUFS the next reading does not depend on earlier ones. */
int store_take(struct store_writer *w, uint64_t now_ns, bool has_step, int64_t step,
               enum store_why why, double *ret_live_bytes);
/* Waits at most WAIT_NS for the disk. Returns 0, -ETIMEDOUT, or the first error. */
int store_flush(struct store_writer *w, uint64_t wait_ns);
/* Returns the first write error, or 0. */
int store_error(const struct store_writer *w);
uint64_t store_size_bytes(const struct store_writer *w);
/* Closes the file. Returns 0, the first error, or -ETIMEDOUT. W may be NULL. */
int store_writer_close(struct store_writer *w, uint64_t wait_ns);

/* Reads the whole file; damaged blocks are skipped and counted. Returns -EBADMSG if nothing is
 * readable, -ENOTSUP for another version. RET_DAMAGE may be NULL. */
struct store_damage {
    uint64_t bad_bytes, cut_bytes;
};
int store_read(int fd, struct profile **ret, struct store_damage *ret_damage, struct err *err);
/* Like store_read, from bytes in memory; for fuzzing. */
int store_parse(const void *bytes, size_t len, struct profile **ret,
                struct store_damage *ret_damage, struct err *err);
