/* Records into items: who lives, what was last read, what a lost block held back. Private to
 * trace/. */
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

/* Zeroed is a valid beginning. */
struct replay {
    struct replay_entity **entities;
    size_t entity_count, entity_cap;
    struct numbers map; /* from replay_key to a place in entities */
    struct replay_pending *pending;
    size_t pending_count, pending_cap, pending_at;
    uint64_t pending_t_ns;
    struct trace_row *rows;
    size_t rows_cap;
    struct buf text;
};

void replay_fini(struct replay *r);
/* 1 an item, 0 none, -EBADMSG, -ENOMEM. Ask replay_pending before each. */
int replay_apply(struct replay *r, const struct record *record, struct trace_item *ret);
/* What the beginning of a block told us that should have come as an event before. */
bool replay_pending(struct replay *r, struct trace_item *ret);
