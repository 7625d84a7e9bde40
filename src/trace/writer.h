/* Writing a recording: append-only, on disk within two seconds, sealed into compressed columns
 * later. The file format is docs/trace-format.md.
 *
 * A cell is a reading: (entity, field, tick) → value. Cells gather in memory into the open block
 * and at each flush go to disk as a raw tail; a full block is compressed into columns and takes
 * the tail's place. All disk work is done by a thread, so a slow disk delays the recording and
 * nothing else; what it cannot take is counted as lost. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "mark/mark.h"
#include "proc/sample.h"

struct err;
struct trace_writer;

struct trace_writer_options {
    uint64_t flush_ns;  /* default 1 s; the promise is at most 2 s */
    size_t block_cells; /* seal after so many readings; default 65536 */
    bool patient;       /* an import: waits for the disk and writes full blocks only */
    /* cap of what waits for the disk; default 2 MiB; what comes then is kept for a while, then lost
     */
    size_t memory_bytes;
    /* Budget of marks; 0: none. A burst of 8 s of it is taken, and the marks of each 4096 s at
     * this rate halve it, so that a recording grows ever more slowly. Steps and substeps, of which
     * the next one says where the job is, leave half of the burst to the other kinds. Marks beyond
     * the budget are left out and counted, in the status and in notes. */
    uint64_t mark_bytes_per_s;
};

/* Creates DIRFD/NAME (it must not exist). HEADER (borrowed, may be NULL) holds what the file says
 * of itself: command, host, kernel, limits, versions, and the time base: "start_mono_ns" and
 * "start_wall_ns", both now where missing; the writer adds "format". OPTIONS may be NULL, and a 0
 * in it is the default. */
int trace_writer_new(int dirfd, const char *name, const json_t *header,
                     const struct trace_writer_options *options, struct trace_writer **ret,
                     struct err *err);

/* None of these fails or blocks: trouble is in the status. Times never go back; one that does is
 * taken as the last one. INFO of a death is not written: the last one known is given back. */
void trace_writer_process(struct trace_writer *w, uint64_t t_ns, enum process_event_kind kind,
                          uint32_t slot, const struct process_info *info);
/* False: left out for the budget. */
bool trace_writer_mark(struct trace_writer *w, const struct mark *mark);
/* Anything else worth keeping: KIND is a short word ("verdict", "guard", "limit", "gap"), TEXT a
 * JSON object. */
void trace_writer_note(struct trace_writer *w, uint64_t t_ns, const char *kind, const char *text);
/* Names a GPU or a job's own series (NAME is raw text). */
void trace_writer_entity(struct trace_writer *w, uint64_t t_ns, enum sample_entity_kind kind,
                         uint32_t id, const char *name);

/* One tick: begin, one call for each entity (a second one is not taken), end. Of a sample the
 * cells with the `read` bit are written, and its stale bits. */
void trace_writer_tick_begin(struct trace_writer *w, uint64_t t_ns);
void trace_writer_sample(struct trace_writer *w, enum sample_entity_kind kind, uint32_t id,
                         const struct sample *sample);
void trace_writer_tick_end(struct trace_writer *w);

/* Hands what is due to the disk thread. Call after each tick. */
void trace_writer_flush(struct trace_writer *w, uint64_t now_ns, bool now);

struct trace_writer_status {
    int first_error; /* 0 or the first -errno of the disk */
    bool failing;    /* the last try failed */
    uint64_t bytes_on_disk;
    uint64_t bytes_waiting; /* for the disk */
    uint64_t blocks_lost;   /* of which not all reached the disk */
    uint64_t cells;
    uint64_t marks_left_out; /* for the budget */
};
void trace_writer_status(const struct trace_writer *w, struct trace_writer_status *ret);
/* An eventfd that becomes readable when the first error happens; owned by the writer. */
int trace_writer_error_fd(const struct trace_writer *w);

/* Seals, writes FOOTER (borrowed, may be NULL) as a note of kind "end", waits for the disk at most
 * WAIT_NS. 0, the first error, or -ETIMEDOUT. Frees W in any case; NULL is fine. */
int trace_writer_close(struct trace_writer *w, const json_t *footer, uint64_t wait_ns);
