/* A recording as it is written: the open block and what is known of it. For writer.c, which gathers
 * records, and writer_disk.c, which hands them over. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/texts.h"
#include "base/buf.h"
#include "proc/sample.h"
#include "trace/writer.h"

struct sink;

/* Of what a block has besides its beginning: it ends once the disk thread has it, and takes no
 * marks. */
enum { ROLL_BYTES = 2 * 1024 * 1024 };

struct entity {
    enum sample_entity_kind kind;
    uint32_t id;
    bool in_block; /* has a number in the rows of the open block: */
    uint32_t number;
    uint64_t tick;         /* the last tick it was given at */
    struct buf definition; /* process or name, as the beginning of a block says it; empty: none */
    uint64_t last[SAMPLE_FIELDS_MAX];
};

struct trace_writer {
    struct sink *sink;
    struct trace_writer_options options;
    struct trace_writer_status status;

    struct entity *entities;
    size_t entity_count, entity_cap;
    struct numbers map; /* from entity_key to a place in entities */

    uint64_t t_ns; /* of the last record */
    uint64_t flushed_ns;
    uint64_t tick_t_ns, tick; /* of the open tick; its number from 1 on */
    uint64_t tick_rows;
    struct buf rows;
    struct buf body; /* scratch */

    /* the open block */
    uint64_t seq;
    uint64_t opened_ns;
    struct buf records;
    size_t begin_len; /* of records: what the block began with */
    size_t handed;    /* of records: what the disk thread has */
    uint64_t cells;
    uint32_t numbers;
    bool open;
    bool tail_begun; /* the tail of the file is this block */
    bool lossy;      /* counted as lost already */

    bool in_tick;
    bool unsynced;           /* something was handed over since the last sync */
    uint64_t unsure;         /* blocks that ended and may not have reached the disk yet */
    uint64_t losses_seen;    /* of the sink */
    uint64_t marks_lost;     /* and not said in the recording yet */
    uint64_t marks_left_out; /* the same, for the budget */
    uint64_t mark_bytes;     /* of marks so far */
    uint64_t mark_credit_ns; /* budget that is left, in byte-nanoseconds, … */
    uint64_t mark_t_ns;      /* … at this time; 0: before the first mark */
    int error;               /* 0, or -ENOBUFS once something found no room */
    bool losing;             /* of late: before the last flush, */
    bool lost_lately;        /* and since */
};

/* The open block is over, whatever became of it. */
void writer_block_end(struct trace_writer *w);
/* Something of the open block never reaches the disk: counted, and said by the eventfd as an error
 * of the disk is. */
void writer_count_loss(struct trace_writer *w);
void writer_say_lost_marks(struct trace_writer *w); /* as a note, if there are any */

/* Keeps the open block within bounds between two flushes. */
void writer_relieve(struct trace_writer *w);
/* Takes in what the disk lost. True where everything that it was given is on it, so that the tail
 * can be replaced without a risk. */
bool writer_watch_disk(struct trace_writer *w);
/* The last block, handed over by UNTIL_NS if it is to be. */
void writer_close_block(struct trace_writer *w, uint64_t until_ns);
