/* The state of a recording that is being written. writer.c collects records, and writer_disk.c
 * passes them to the disk thread. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/texts.h"
#include "base/buf.h"
#include "proc/sample.h"
#include "trace/writer.h"

struct sink;

/* Size of a block, without the list at its beginning, from which on the block accepts no more
 * marks, and ends as soon as the disk thread has taken its data. */
enum { ROLL_BYTES = 2 * 1024 * 1024 };

struct entity {
    enum sample_entity_kind kind;
    uint32_t id;
    bool in_block; /* the entity has an index in the rows of the open block */
    uint32_t number;
    uint64_t tick; /* number of the last tick with a sample */
    /* the process or name as encoded at the beginning of a block; empty if there is none */
    struct buf definition;
    uint64_t last[SAMPLE_FIELDS_MAX];
};

struct trace_writer {
    struct sink *sink;
    struct trace_writer_options options;
    struct trace_writer_status status;

    struct entity *entities;
    size_t entity_count, entity_cap;
    struct numbers map; /* maps entity_key to an index in `entities` */

    uint64_t t_ns; /* time of the newest record */
    uint64_t flushed_ns;
    uint64_t tick_t_ns, tick; /* time and number (from 1) of the open tick */
    uint64_t tick_rows;
    struct buf rows;
    struct buf body; /* scratch buffer */

    /* the open block */
    uint64_t seq;
    uint64_t opened_ns;
    struct buf records;
    size_t begin_len; /* length of the list of living entities with which `records` begins */
    size_t handed;    /* length of the part of `records` that the disk thread has received */
    uint64_t cells;
    uint32_t numbers;
    bool open;
    bool tail_begun; /* the tail of the file has parts of this block */
    bool lossy;      /* a loss in this block was already counted */

    bool in_tick;
    bool unsynced;        /* data were passed on since the last sync */
    uint64_t unsure;      /* number of ended blocks that the disk may not have stored yet */
    uint64_t losses_seen; /* number of the sink's losses that were handled so far */
    uint64_t marks_lost;  /* number of lost marks that are not yet noted in the recording */
    /* number of marks dropped because of the budget and not yet noted in the recording */
    uint64_t marks_left_out;
    uint64_t mark_bytes; /* size of all marks written so far */
    /* the part of the budget left at mark_t_ns, in bytes times nanoseconds */
    uint64_t mark_credit_ns;
    uint64_t mark_t_ns; /* time of the last mark; 0 before the first */
    int error; /* error of the recording: 0, or -ENOBUFS once data were dropped for lack of room */
    bool losing;      /* data were lost before the last flush */
    bool lost_lately; /* data were lost since the last flush */
};

/* Ends the open block, complete or not. */
void writer_block_end(struct trace_writer *w);
/* Counts a loss in the open block, and signals it through the eventfd like a disk error. */
void writer_count_loss(struct trace_writer *w);
void writer_note_lost_marks(struct trace_writer *w); /* writes a note if marks were lost */

/* Ends or passes on the open block if it has become too large between two flushes. */
void writer_relieve(struct trace_writer *w);
/* Handles write errors of the disk. Returns true if all data passed on are on disk; the tail can
 * then be replaced without risk. */
bool writer_watch_disk(struct trace_writer *w);
/* Passes on the last block, and waits for the disk until UNTIL_NS at the latest. */
void writer_close_block(struct trace_writer *w, uint64_t until_ns);
