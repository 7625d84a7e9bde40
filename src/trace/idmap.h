/* From (kind, id) of an entity to its place in an array. Private to trace/. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "proc/sample.h"

enum { IDMAP_NONE = -1 };

/* Zeroed is a valid empty map. Open addressing; entries are never removed one by one. */
struct idmap {
    struct idmap_slot {
        uint32_t kind, id;
        int32_t index; /* + 1; 0 is empty */
    } * slots;
    size_t count;
    size_t cap; /* a power of two */
};

void idmap_fini(struct idmap *m);
void idmap_clear(struct idmap *m);
int32_t idmap_get(const struct idmap *m, enum sample_entity_kind kind, uint32_t id);
/* The pair must not be there yet. 0 or -ENOMEM. */
int idmap_put(struct idmap *m, enum sample_entity_kind kind, uint32_t id, int32_t index);
