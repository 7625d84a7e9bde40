/* The records of a block, in the format of raw parts and of unpacked sealed blocks. Used only in
 * trace/. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "proc/sample.h"

/* Record types. The numbers are part of the file format. */
enum record_type {
    RECORD_BEGIN = 1, /* the first record of every block; lists all live entities */
    /* a process event: its kind, the process's slot (entity id) and, except for an exit, the
     * description of the process */
    RECORD_PROCESS = 2,
    RECORD_ENTITY = 3, /* kind, id and name of an entity */
    RECORD_MARK = 4,   /* pid and text */
    RECORD_NOTE = 5,   /* kind and text */
    /* kind and id of an entity; gives the entity the next free row index of this block */
    RECORD_USE = 6,
    RECORD_TICK = 7, /* the rows of a tick */
};

enum {
    RECORD_ENTITIES_MAX = 65536, /* maximum number of entities in one block */
    RECORD_COLUMNS = SAMPLE_FIELDS_MAX + 1,
    /* column number of the stale bits, which are stored like a field */
    RECORD_STALE_COLUMN = SAMPLE_FIELDS_MAX,
};

/* The readings of one entity at one tick. v[f] is valid only if bit f of `read` is set. */
struct record_row {
    uint32_t kind; /* kind of the entity; may be unknown to this version of ebb */
    uint32_t id;
    uint32_t index; /* the entity's row index in this block */
    uint32_t read;
    uint32_t stale;
    uint64_t v[SAMPLE_FIELDS_MAX];
};

/* A decoded record, valid until the next record is decoded. */
struct record {
    uint32_t type;
    uint64_t t_ns;
    struct cur body;               /* content of the record; unused for ticks */
    const struct record_row *rows; /* content of a tick: rows sorted by kind and id */
    size_t count;
};

/* Appends a record: type, time since the previous record, length and body. */
void record_add(struct buf *out, uint32_t type, uint64_t dt_ns, const void *body, size_t len);
/* Appends one row of a tick, as differences between SAMPLE and LAST. Updates LAST. */
void record_add_row(struct buf *out, uint32_t index, const struct sample *sample,
                    uint64_t last[SAMPLE_FIELDS_MAX]);
void record_add_process(struct buf *out, const struct process_info *info);
/* Decodes a process. An unknown role becomes ROLE_OTHER. Returns 0, or -EBADMSG and leaves *ret
 * unchanged. */
int record_get_process(struct cur *c, struct process_info *ret);

/* Decodes the records of a block in order. A zeroed decoder is at the beginning of a block. */
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
/* prepares for the next block; keeps allocated memory */
void record_decoder_restart(struct record_decoder *d);
/* Decodes the next record. Returns 1, 0 at the end, -EBADMSG or -ENOMEM. USE records are handled
 * internally and not returned. */
int record_decode(struct record_decoder *d, struct cur *c, struct record *ret);
