/* The records of a block, as rows: what a RAW part holds and what a sealed block gives back.
 * Private to trace/. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "proc/sample.h"

/* Numbers are part of the format. */
enum record_type {
    RECORD_BEGIN = 1,   /* first of every block: everything that lives */
    RECORD_PROCESS = 2, /* an event: kind, slot, and the process unless it died */
    RECORD_ENTITY = 3,  /* kind, id, name */
    RECORD_MARK = 4,    /* pid, text */
    RECORD_NOTE = 5,    /* kind, text */
    RECORD_USE = 6,     /* kind, id: gets the next number in the rows of this block */
    RECORD_TICK = 7,    /* rows */
};

enum {
    RECORD_ENTITIES_MAX = 65536, /* in use in one block */
    RECORD_COLUMNS = SAMPLE_FIELDS_MAX + 1,
    RECORD_STALE_COLUMN = SAMPLE_FIELDS_MAX, /* the stale bits are one more column */
};

/* One entity at one tick; only v[] of `read` is set. */
struct record_row {
    uint32_t kind; /* may be unknown to us */
    uint32_t id;
    uint32_t index; /* its number in this block */
    uint32_t read;
    uint32_t stale;
    uint64_t v[SAMPLE_FIELDS_MAX];
};

/* Valid until the next one is decoded. */
struct record {
    uint32_t type;
    uint64_t t_ns;
    struct cur body;               /* of all but ticks */
    const struct record_row *rows; /* of ticks, by kind and id */
    size_t count;
};

/* type, time since the record before, length, body. */
void record_add(struct buf *out, uint32_t type, uint64_t dt_ns, const void *body, size_t len);
/* One row of a tick: SAMPLE against the LAST values, which it brings up to date. */
void record_add_row(struct buf *out, uint32_t index, const struct sample *sample,
                    uint64_t last[SAMPLE_FIELDS_MAX]);
void record_add_process(struct buf *out, const struct process_info *info);
/* -EBADMSG leaves *ret untouched. A role we do not know is "other". */
int record_get_process(struct cur *c, struct process_info *ret);

/* Zeroed is valid and stands at the beginning of a block. */
struct record_decoder {
    uint64_t t_ns;
    struct record_entity {
        uint32_t kind, id;
        uint64_t last[SAMPLE_FIELDS_MAX];
    } * entities;
    size_t count, cap;
    struct record_row *rows;
    size_t rows_cap;
};

void record_decoder_fini(struct record_decoder *d);
void record_decoder_restart(struct record_decoder *d); /* keeps the memory */
/* 1 and a record, 0 at the end, -EBADMSG, -ENOMEM. USE records are taken in, not given out. */
int record_decode(struct record_decoder *d, struct cur *c, struct record *ret);
