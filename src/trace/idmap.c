/* A small hash table with linear probing. */
#include "trace/idmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void idmap_fini(struct idmap *m)
{
    free(m->slots);
    *m = (struct idmap){0};
}

void idmap_clear(struct idmap *m)
{
    m->count = 0;
    if (m->cap > 0)
        memset(m->slots, 0, m->cap * sizeof *m->slots);
}

/* Ids come from files too: the multiplication spreads runs of them. */
static size_t first_slot(const struct idmap *m, uint32_t kind, uint32_t id)
{
    uint64_t h = ((uint64_t)kind << 32 | id) * UINT64_C(0x9E3779B97F4A7C15);
    return (size_t)(h ^ h >> 32) & (m->cap - 1);
}

static struct idmap_slot *find(const struct idmap *m, uint32_t kind, uint32_t id)
{
    size_t i = first_slot(m, kind, id);
    while (m->slots[i].index != 0 && (m->slots[i].id != id || m->slots[i].kind != kind))
        i = (i + 1) & (m->cap - 1);
    return &m->slots[i];
}

int32_t idmap_get(const struct idmap *m, enum sample_entity_kind kind, uint32_t id)
{
    if (m->count == 0)
        return IDMAP_NONE;
    return find(m, kind, id)->index - 1;
}

static int grow(struct idmap *m)
{
    struct idmap bigger = {.cap = m->cap ? m->cap * 2 : 64, .count = m->count};
    bigger.slots = calloc(bigger.cap, sizeof *bigger.slots);
    if (!bigger.slots)
        return -ENOMEM;
    for (size_t i = 0; i < m->cap; i++)
        if (m->slots[i].index != 0)
            *find(&bigger, m->slots[i].kind, m->slots[i].id) = m->slots[i];
    free(m->slots);
    *m = bigger;
    return 0;
}

int idmap_put(struct idmap *m, enum sample_entity_kind kind, uint32_t id, int32_t index)
{
    if (m->count * 4 >= m->cap * 3) {
        int rc = grow(m);
        if (rc < 0)
            return rc;
    }
    *find(m, kind, id) = (struct idmap_slot){kind, id, index + 1};
    m->count++;
    return 0;
}
