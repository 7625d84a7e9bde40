/* Writes a recording. It is append-only, on disk within two seconds, and later sealed into
 * compressed columns. docs/reference/trace-format.md describes the file format. A cell is one
 * reading: (entity, field, tick) → value. Cells are collected in memory in the open block and
 * written as a raw tail at each flush; a full block is compressed into columns, which replace the
 * tail. A separate thread does all disk work, so a slow disk delays only the recording; data that
 * the disk cannot take are counted as lost. */
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
    /* time between flushes: default 1 s, at most 2 s so that data are on disk within two seconds */
    uint64_t flush_ns;
    size_t block_cells; /* number of cells after which a block is sealed (default 65536) */
    bool patient; /* wait for the disk and write only full blocks; used for generated recordings */
    /* amount of data that may wait for the disk (default 2 MiB); beyond it, data stay in the open
     * block, and are lost if the disk does not catch up */
    size_t memory_bytes;
    /* Budget for marks in bytes per second; 0 means unlimited. A burst may spend 8 s of the budget.
     * The budget is halved after each 4096 s worth of marks, so that the recording grows ever more
     * slowly. Steps and substeps may use only half of a burst, because the next step supersedes
     * them. Marks beyond the budget are dropped and counted, in the status and in notes. */
    uint64_t mark_bytes_per_s;
};

/* Creates the recording DIRFD/NAME, which must not exist. HEADER (may be NULL, not owned) describes
 * it: command, host, kernel, limits, versions, and the time base, "start_mono_ns" and
 * "start_wall_ns" (default: now). The writer adds "format". OPTIONS may be NULL; values of 0 mean
 * the default. */
int trace_writer_new(int dirfd, const char *name, const json_t *header,
                     const struct trace_writer_options *options, struct trace_writer **ret,
                     struct err *err);

/* The functions below never fail or block; errors are in the status. If T_NS is earlier than the
 * last time, the last time is used. INFO of a death is not written; a reader returns the last known
 * INFO. */
void trace_writer_process(struct trace_writer *w, uint64_t t_ns, enum process_event_kind kind,
                          uint32_t slot, const struct process_info *info);
/* Returns false if the mark was dropped because of the budget. */
bool trace_writer_mark(struct trace_writer *w, const struct mark *mark);
/* Records a note. KIND is a short word ("verdict", "guard", "limit", "gap"), TEXT a JSON object. */
void trace_writer_note(struct trace_writer *w, uint64_t t_ns, const char *kind, const char *text);
/* Names a GPU or a series of the job. NAME is raw text. */
void trace_writer_entity(struct trace_writer *w, uint64_t t_ns, enum sample_entity_kind kind,
                         uint32_t id, const char *name);

/* Records one tick. Call begin, then trace_writer_sample for each entity, then end. A second sample
 * of the same entity is ignored. The fields whose `read` bit is set and the stale bits are
 * written. */
void trace_writer_tick_begin(struct trace_writer *w, uint64_t t_ns);
void trace_writer_sample(struct trace_writer *w, enum sample_entity_kind kind, uint32_t id,
                         const struct sample *sample);
void trace_writer_tick_end(struct trace_writer *w);

/* Passes data to the disk thread if they are due, or if NOW is set. Call it after each tick. */
void trace_writer_flush(struct trace_writer *w, uint64_t now_ns, bool now);

struct trace_writer_status {
    int first_error; /* the first -errno of the disk, or 0 */
    bool failing;    /* the last write failed */
    uint64_t bytes_on_disk;
    uint64_t bytes_waiting; /* bytes queued for the disk */
    uint64_t blocks_lost;   /* number of blocks that did not reach the disk completely */
    uint64_t cells;
    uint64_t marks_left_out; /* number of marks dropped because of the budget */
};
void trace_writer_status(const struct trace_writer *w, struct trace_writer_status *ret);
/* An eventfd that becomes readable at the first error. The writer owns it. */
int trace_writer_error_fd(const struct trace_writer *w);

/* Seals the last block, writes FOOTER (may be NULL, not owned) as a note of kind "end", and waits
 * for the disk at most WAIT_NS. Returns 0, the first error, or -ETIMEDOUT. Frees W in any case. W
 * may be NULL. */
int trace_writer_close(struct trace_writer *w, const json_t *footer, uint64_t wait_ns);
