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

/* A block larger than this accepts no more marks, and ends as soon as the disk thread has received
 * all of it. The list of entities at the beginning of the block is not counted. */
enum { ROLL_BYTES = 2 * 1024 * 1024 };

struct entity {
    enum sample_entity_kind kind;
    uint32_t id;
    bool in_block; /* true if the entity has a row index in the open block */
    uint32_t number;
    uint64_t tick; /* number of the last tick that has a sample of the entity */
    /* the process or name, as encoded at the beginning of a block; empty if unknown or exited */
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
    size_t begin_len; /* length of the list of live entities at the beginning of `records` */
    size_t handed;    /* number of bytes of `records` that were passed to the disk thread */
    uint64_t cells;
    uint32_t numbers;
    bool open;
    bool tail_begun; /* the tail of the file consists of parts of this block */
    bool lossy;      /* this block is already counted as lost */

    bool in_tick;
    bool unsynced;        /* data were passed to the disk thread since the last sync */
    uint64_t unsure;      /* number of finished blocks that may not be on the disk yet */
    uint64_t losses_seen; /* number of the losses in the sink's status that were already handled */
    uint64_t marks_lost;  /* number of lost marks for which no note has been written yet */
    /* number of marks dropped because of the budget, for which no note has been written yet */
    uint64_t marks_left_out;
    uint64_t mark_bytes; /* total size of the marks written */
    /* budget left at mark_t_ns, in bytes times nanoseconds */
    uint64_t mark_credit_ns;
    uint64_t mark_t_ns; /* time of the last mark; 0 before the first */
    int error;          /* 0, or -ENOBUFS once data were dropped because the queue was full */
    bool losing;        /* data were lost between the last two flushes */
    bool lost_lately;   /* data were lost since the last flush */
};

/* Ends the open block, complete or not. */
void writer_block_end(struct trace_writer *w);
/* Counts the open block as lost unless it is already counted, and signals the loss through the
 * eventfd like a disk error. */
void writer_count_loss(struct trace_writer *w);
/* Writes a note if marks were lost or dropped. */
void writer_note_lost_marks(struct trace_writer *w);

/* Called when the open block may have grown too large to wait for the next flush. If so, passes
 * parts of it to the disk thread, or ends it. */
void writer_relieve(struct trace_writer *w);
/* Handles the write errors of the sink. Returns true if all data passed to the disk thread are on
 * the disk; only then is it safe to replace the tail. */
bool writer_watch_disk(struct trace_writer *w);
/* Passes the last block to the disk thread, waiting for room until UNTIL_NS, and ends the block. */
void writer_close_block(struct trace_writer *w, uint64_t until_ns);
