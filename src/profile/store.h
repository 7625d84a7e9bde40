/* heap.PID.ebbheap: the history of one process's heap in the run folder. Append-only blocks, each
 * whole or ignored: what is new in modules, codes, texts, nodes and sites; a reading (what each
 * site holds, as changes since the last one); a snapshot (every live sample). docs/heap-format.md.
 *
 * Its size does not depend on the length of the run: readings come every max(2 s, 1/500 of the
 * run), so their number grows with the logarithm of its length, snapshots are at most
 * STORE_SNAPSHOTS (then every second one is let go), and a file at STORE_BYTES_MAX takes no more.
 */
#pragma once

#include <stdint.h>

#include "profile/look.h"
#include "profile/profile.h"

struct store_writer;

enum { STORE_SNAPSHOTS = 32, STORE_BYTES_MAX = 48 << 20 };

/* Makes NAME in DIRFD; takes nothing over. Written by a thread of its own (trace/sink.h). */
int store_create(int dirfd, const char *name, const struct look *look, struct store_writer **ret,
                 struct err *err);
/* Is a reading due at NOW_NS? */
bool store_is_due(const struct store_writer *w, uint64_t now_ns);
/* Takes a reading now: at a step mark, at a tick, at the end. HAS_STEP false: no marks. A snapshot
 * comes with it when EPOCH_END, FORCE, or live bytes have grown by 10 % since the last one. The
 * total of live bytes is told. */
int store_take(struct store_writer *w, uint64_t now_ns, bool has_step, int64_t step, bool epoch_end,
               bool force, double *ret_live_bytes);
/* Waits for the disk at most WAIT_NS. */
int store_flush(struct store_writer *w, uint64_t wait_ns);
uint64_t store_size_bytes(const struct store_writer *w);
void store_close(struct store_writer *w, uint64_t wait_ns); /* NULL is fine */

/* All of a file; damaged blocks are left out and counted. -EBADMSG: nothing of it is readable. */
struct store_damage {
    uint64_t bad_bytes, cut_bytes;
};
int store_read(int fd, struct profile **ret, struct store_damage *ret_damage, struct err *err);
/* The same from bytes: what is fuzzed. */
int store_parse(const void *bytes, size_t len, struct profile **ret,
                struct store_damage *ret_damage, struct err *err);
/* A live table as a profile of one reading and one snapshot (tests, and tools without a run). */
int store_of_look(const struct look *look, uint64_t now_ns, struct profile **ret, struct err *err);
