/* Writes a recording. New data are appended, reach the disk within two seconds, and are later
 * sealed into compressed columns. docs/reference/trace-format.md describes the file format. A cell
 * is one reading: (entity, field, tick) → value. Cells are collected in memory in the open block
 * and written as raw parts, the tail of the file, at each flush. A full block is compressed into
 * columns, which replace the tail. All disk work is done in a separate thread, so a slow disk
 * delays only the recording. Data that the disk does not accept in time are counted as lost. */
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
    /* time between flushes: default 1 s, maximum 2 s */
    uint64_t flush_ns;
    size_t block_cells; /* number of cells after which a block is sealed (default 65536) */
    bool patient; /* waits for the disk and writes only full blocks; for generated recordings */
    /* maximum amount of data waiting for the disk (default 2 MiB); further data stay in the open
     * block, and are lost if the disk remains too slow */
    size_t memory_bytes;
    /* Budget for marks in bytes per second; 0 means unlimited. A burst may spend the budget of 8 s.
     * The budget is halved each time marks have used 4096 s of the initial budget, so that the
     * recording grows more and more slowly. Steps and substeps may spend only half of a burst,
     * because they matter least: the next step supersedes them. Marks beyond the budget are dropped
     * and counted, both in the status and in notes. */
    uint64_t mark_bytes_per_s;
};

/* Creates the recording DIRFD/NAME, which must not exist. HEADER (may be NULL, not owned) describes
 * it: command, host, kernel, limits, ebb's version, and the time base, "start_mono_ns" and
 * "start_wall_ns" (default: now). The writer adds "format". OPTIONS may be NULL; zero values mean
 * the default. */
int trace_writer_new(int dirfd, const char *name, const json_t *header,
                     const struct trace_writer_options *options, struct trace_writer **ret,
                     struct err *err);

/* The functions below never fail or block; errors appear in the status. If T_NS is earlier than in
 * the previous call, the previous value is used. For the exit of a process, INFO is not written:
 * readers return the last INFO that was written. */
void trace_writer_process(struct trace_writer *w, uint64_t t_ns, enum process_event_kind kind,
                          uint32_t slot, const struct process_info *info);
/* Returns false if the mark was dropped because of the budget. */
bool trace_writer_mark(struct trace_writer *w, const struct mark *mark);
/* Records a note. KIND is a short word ("verdict", "guard", "limit", "gap"), TEXT a JSON object. */
void trace_writer_note(struct trace_writer *w, uint64_t t_ns, const char *kind, const char *text);
/* Names a GPU or a series of the job. NAME may contain any bytes. */
void trace_writer_entity(struct trace_writer *w, uint64_t t_ns, enum sample_entity_kind kind,
                         uint32_t id, const char *name);

/* Records one tick: call begin, then trace_writer_sample for each entity, then end. A second sample
 * of the same entity is ignored. Writes the stale bits, and the fields whose `read` bit is set. */
void trace_writer_tick_begin(struct trace_writer *w, uint64_t t_ns);
void trace_writer_sample(struct trace_writer *w, enum sample_entity_kind kind, uint32_t id,
                         const struct sample *sample);
void trace_writer_tick_end(struct trace_writer *w);

/* Passes data to the disk thread if a flush is due or NOW is set. Call it after each tick. */
void trace_writer_flush(struct trace_writer *w, uint64_t now_ns, bool now);

struct trace_writer_status {
    int first_error; /* the first -errno of a disk operation, or 0 */
    bool failing;    /* the last write failed, or data were lost recently */
    uint64_t bytes_on_disk;
    uint64_t bytes_waiting; /* number of bytes queued for the disk */
    uint64_t blocks_lost;   /* number of blocks that are missing or incomplete on the disk */
    uint64_t cells;
    uint64_t marks_left_out; /* number of marks dropped because of the budget */
};
void trace_writer_status(const struct trace_writer *w, struct trace_writer_status *ret);
/* An eventfd that becomes readable at the first error. The writer owns it. */
int trace_writer_error_fd(const struct trace_writer *w);

/* Seals the last block, writes FOOTER (may be NULL, not owned) as a note of kind "end", and waits
 * up to WAIT_NS for the disk. Returns 0, the first error, or -ETIMEDOUT. Always frees W, which may
 * be NULL. */
int trace_writer_close(struct trace_writer *w, const json_t *footer, uint64_t wait_ns);
