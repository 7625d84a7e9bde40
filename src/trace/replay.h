/* Converts records to items: tracks live entities and their last readings, and reconstructs the
 * events of lost blocks. Used only in trace/. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/texts.h"
#include "trace/reader.h"
#include "trace/record.h"

struct replay_entity;
struct replay_pending;

/* The state of the conversion. A zeroed struct is at the beginning of a recording. */
struct replay {
    struct replay_entity **entities;
    size_t entity_count, entity_cap;
    struct numbers map; /* maps replay_key to an index in `entities` */
    struct replay_pending *pending;
    size_t pending_count, pending_cap, pending_at;
    uint64_t pending_t_ns;
    struct trace_row *rows;
    size_t rows_cap;
    struct buf text;
};

void replay_fini(struct replay *r);
/* Converts one record. Returns 1 and sets *ret; 0 if the record results in no item; -EBADMSG or
 * -ENOMEM. Before each call, the caller must call replay_pending until it returns false. */
int replay_apply(struct replay *r, const struct record *record, struct trace_item *ret);
/* Returns the next event of a lost block, reconstructed from the list at the beginning of the
 * following block. Returns false if no event is left. */
bool replay_pending(struct replay *r, struct trace_item *ret);
