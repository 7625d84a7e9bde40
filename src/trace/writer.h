/* Writes a recording. It is append-only, on disk within two seconds, and later sealed into
 * compressed columns. The file format is docs/reference/trace-format.md. A cell is one reading:
 * (entity, field, tick) → value. Cells are collected in memory in the open block and written as a
 * raw tail at each flush; a full block is compressed into columns, which replace the tail. A
 * thread does all disk work, so a slow disk delays only the recording; data that the disk cannot
 * take are counted as lost. */
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
    uint64_t flush_ns;  /* default 1 s; at most 2 s, so that the promise above holds */
    size_t block_cells; /* a block is sealed after this many cells; default 65536 */
    bool patient;       /* wait for the disk and write full blocks only; for generated recordings */
    /* the most data queued for the disk (default 2 MiB); further data are kept for a while, then
     * lost */
    size_t memory_bytes;
    /* Budget for marks; 0: unlimited. A burst of 8 s of it is accepted. Each time 4096 s worth of
     * marks were written, the budget is halved, so that the recording grows ever more slowly.
     * Steps and substeps may use only half of a burst, because the next one supersedes them. Marks
     * beyond the budget are dropped and counted, in the status and in notes. */
    uint64_t mark_bytes_per_s;
};

/* Creates DIRFD/NAME, which must not exist. HEADER (borrowed, may be NULL) describes the
 * recording: command, host, kernel, limits, versions, and the time base, "start_mono_ns" and
 * "start_wall_ns" (default: now). The writer adds "format". OPTIONS may be NULL; 0 means the
 * default. */
int trace_writer_new(int dirfd, const char *name, const json_t *header,
                     const struct trace_writer_options *options, struct trace_writer **ret,
                     struct err *err);

/* None of these functions fails or blocks; errors are in the status. If T_NS is earlier than the
 * last time, the last time is used. INFO of a death is not written: the reader returns the last
 * known one. */
void trace_writer_process(struct trace_writer *w, uint64_t t_ns, enum process_event_kind kind,
                          uint32_t slot, const struct process_info *info);
/* False: the mark was dropped because of the budget. */
bool trace_writer_mark(struct trace_writer *w, const struct mark *mark);
/* Records a note. KIND is a short word ("verdict", "guard", "limit", "gap"), TEXT a JSON object. */
void trace_writer_note(struct trace_writer *w, uint64_t t_ns, const char *kind, const char *text);
/* Names a GPU or a figure of the job. NAME is raw text. */
void trace_writer_entity(struct trace_writer *w, uint64_t t_ns, enum sample_entity_kind kind,
                         uint32_t id, const char *name);

/* One tick: call begin, then trace_writer_sample for each entity (a second call for an entity is
 * ignored), then end. Fields with the `read` bit and the stale bits are written. */
void trace_writer_tick_begin(struct trace_writer *w, uint64_t t_ns);
void trace_writer_sample(struct trace_writer *w, enum sample_entity_kind kind, uint32_t id,
                         const struct sample *sample);
void trace_writer_tick_end(struct trace_writer *w);

/* Passes data to the disk thread if they are due, or if NOW. Call it after each tick. */
void trace_writer_flush(struct trace_writer *w, uint64_t now_ns, bool now);

struct trace_writer_status {
    int first_error; /* 0 or the first -errno of the disk */
    bool failing;    /* the last write failed */
    uint64_t bytes_on_disk;
    uint64_t bytes_waiting; /* bytes queued for the disk */
    uint64_t blocks_lost;   /* blocks that did not reach the disk completely */
    uint64_t cells;
    uint64_t marks_left_out; /* dropped because of the budget */
};
void trace_writer_status(const struct trace_writer *w, struct trace_writer_status *ret);
/* An eventfd that becomes readable at the first error; owned by the writer. */
int trace_writer_error_fd(const struct trace_writer *w);

/* Seals the last block, writes FOOTER (borrowed, may be NULL) as a note of kind "end", and waits
 * for the disk at most WAIT_NS. 0, the first error, or -ETIMEDOUT. Frees W in any case. W may be
 * NULL. */
int trace_writer_close(struct trace_writer *w, const json_t *footer, uint64_t wait_ns);
