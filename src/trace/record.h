/* The records of a block, in the format of a RAW part and of an unpacked sealed block. Private to
 * trace/. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "proc/sample.h"

/* The numbers are part of the file format. */
enum record_type {
    RECORD_BEGIN = 1,   /* the first record of every block: all living entities */
    RECORD_PROCESS = 2, /* an event: kind, slot and, unless it is a death, the process */
    RECORD_ENTITY = 3,  /* kind, id, name */
    RECORD_MARK = 4,    /* pid, text */
    RECORD_NOTE = 5,    /* kind, text */
    RECORD_USE = 6,     /* kind, id: assigns the entity the next index in the rows of this block */
    RECORD_TICK = 7,    /* rows */
};

enum {
    RECORD_ENTITIES_MAX = 65536, /* entities used in one block */
    RECORD_COLUMNS = SAMPLE_FIELDS_MAX + 1,
    RECORD_STALE_COLUMN = SAMPLE_FIELDS_MAX, /* the stale bits are stored as one more column */
};

/* One entity at one tick. Only the elements of v[] with a `read` bit are set. */
struct record_row {
    uint32_t kind; /* may be a kind that this version does not know */
    uint32_t id;
    uint32_t index; /* the entity's index in this block */
    uint32_t read;
    uint32_t stale;
    uint64_t v[SAMPLE_FIELDS_MAX];
};

/* A record, valid until the next one is decoded. */
struct record {
    uint32_t type;
    uint64_t t_ns;
    struct cur body;               /* for all records but ticks */
    const struct record_row *rows; /* for ticks, sorted by kind and id */
    size_t count;
};

/* Appends a record: type, time since the previous record, length, body. */
void record_add(struct buf *out, uint32_t type, uint64_t dt_ns, const void *body, size_t len);
/* Appends one row of a tick: SAMPLE as differences from LAST, which is updated. */
void record_add_row(struct buf *out, uint32_t index, const struct sample *sample,
                    uint64_t last[SAMPLE_FIELDS_MAX]);
void record_add_process(struct buf *out, const struct process_info *info);
/* -EBADMSG leaves *ret untouched. An unknown role becomes ROLE_OTHER. */
int record_get_process(struct cur *c, struct process_info *ret);

/* A zeroed decoder is at the beginning of a block. */
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
void record_decoder_restart(struct record_decoder *d); /* does not free memory */
/* 1 and a record, 0 at the end, -EBADMSG, -ENOMEM. USE records are handled internally. */
int record_decode(struct record_decoder *d, struct cur *c, struct record *ret);
