/* Interned strings, and a map from integers to integers. Both use hash tables with open addressing
 * that are at most half full. */
#include "base/texts.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/span.h"
#include "base/text.h"

enum { TABLE_FIRST = 64 };

static uint64_t mix_key(uint64_t x)
{
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    x ^= x >> 32;
    x *= UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

void texts_fini(struct texts *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->items[i]);
    free(t->items);
    free(t->table);
    *t = (struct texts){0};
}

static size_t text_slot(const struct texts *t, const char *s, size_t len)
{
    size_t at = mix_key(text_hash(len, s, len)) & (t->table_size - 1);
    while (t->table[at]) {
        const char *other = t->items[t->table[at] - 1];
        if (strncmp(other, s, len) == 0 && other[len] == '\0')
            break;
        at = (at + 1) & (t->table_size - 1);
    }
    return at;
}

static int texts_grow(struct texts *t)
{
    struct texts wide = {.items = t->items, .count = t->count};
    wide.table_size = t->table_size ? 2 * t->table_size : TABLE_FIRST;
    wide.table = calloc(wide.table_size, sizeof *wide.table);
    char **items = realloc(t->items, wide.table_size / 2 * sizeof *items);
    if (items) {
        t->items = wide.items = items;
        t->cap = wide.cap = wide.table_size / 2;
    }
    if (!wide.table || !items) {
        free(wide.table);
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < t->count; i++)
        wide.table[text_slot(&wide, items[i], strlen(items[i]))] = i + 1;
    free(t->table);
    *t = wide;
    return 0;
}

int texts_add(struct texts *t, const char *s, size_t len, uint32_t *ret)
{
    len = s ? strnlen(s, len) : 0;
    if (2 * (t->count + 1) > t->table_size && texts_grow(t) < 0)
        return -ENOMEM;
    size_t at = text_slot(t, len ? s : "", len);
    if (!t->table[at]) {
        char *copy = span_copy((struct span){len ? s : "", len});
        if (!copy)
            return -ENOMEM;
        t->items[t->count++] = copy;
        t->table[at] = (uint32_t)t->count;
    }
    *ret = t->table[at] - 1;
    return 0;
}

const char *texts_keep(struct texts *t, const char *s, size_t len)
{
    uint32_t number;
    return texts_add(t, s, len, &number) < 0 ? NULL : t->items[number];
}

void numbers_fini(struct numbers *n)
{
    free(n->slots);
    *n = (struct numbers){0};
}

void numbers_clear(struct numbers *n)
{
    n->count = 0;
    if (n->size)
        memset(n->slots, 0, n->size * sizeof *n->slots);
}

static struct numbers_slot *number_slot(const struct numbers *n, uint64_t key)
{
    size_t at = mix_key(key) & (n->size - 1);
    while (n->slots[at].value && n->slots[at].key != key)
        at = (at + 1) & (n->size - 1);
    return &n->slots[at];
}

bool numbers_get(const struct numbers *n, uint64_t key, uint32_t *ret)
{
    const struct numbers_slot *slot = n->size ? number_slot(n, key) : NULL;
    if (!slot || !slot->value)
        return false;
    *ret = slot->value - 1;
    return true;
}

static int numbers_grow(struct numbers *n)
{
    struct numbers wide = {.count = n->count, .size = n->size ? 2 * n->size : TABLE_FIRST};
    wide.slots = calloc(wide.size, sizeof *wide.slots);
    if (!wide.slots)
        return -ENOMEM;
    for (size_t i = 0; i < n->size; i++)
        if (n->slots[i].value)
            *number_slot(&wide, n->slots[i].key) = n->slots[i];
    free(n->slots);
    *n = wide;
    return 0;
}

int numbers_put(struct numbers *n, uint64_t key, uint32_t value)
{
    if (2 * (n->count + 1) > n->size && numbers_grow(n) < 0)
        return -ENOMEM;
    *number_slot(n, key) = (struct numbers_slot){key, value + 1};
    n->count++;
    return 0;
}
