/* Interning of texts: a hash table over one buffer. */
#include "trace/names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void names_fini(struct names *n)
{
    buf_fini(&n->text);
    free(n->ends);
    free(n->table);
    *n = (struct names){0};
}

const char *names_get(const struct names *n, uint32_t number, size_t *ret_len)
{
    size_t begin = number > 0 ? n->ends[number - 1] : 0;

    *ret_len = n->ends[number] - begin;
    return *ret_len > 0 ? n->text.data + begin : "";
}

/* FNV-1a, mixed once more because only its low bits are used. */
static size_t hash(const char *s, size_t len)
{
    uint64_t h = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * UINT64_C(1099511628211);
    return (size_t)(h ^ h >> 32);
}

/* Where S is, or the free place where it belongs. */
static size_t find(const struct names *n, const char *s, size_t len)
{
    size_t at = hash(s, len) & (n->table_size - 1);

    for (; n->table[at] > 0; at = (at + 1) & (n->table_size - 1)) {
        size_t have_len;
        const char *have = names_get(n, n->table[at] - 1, &have_len);

        if (have_len == len && memcmp(have, s, len) == 0)
            break;
    }
    return at;
}

/* Room for one more name, with the table at most half full. */
static int grow(struct names *n)
{
    size_t cap = n->cap > 0 ? n->cap * 2 : 16;
    size_t *ends;
    uint32_t *table;

    if (n->count < n->cap)
        return 0;
    if (n->count >= UINT32_MAX / 4)
        return -ENOMEM;
    ends = realloc(n->ends, cap * sizeof(*ends));
    if (!ends)
        return -ENOMEM;
    n->ends = ends;
    table = calloc(cap * 2, sizeof(*table));
    if (!table)
        return -ENOMEM;
    free(n->table);
    n->table = table;
    n->table_size = cap * 2;
    n->cap = cap;
    for (uint32_t i = 0; i < n->count; i++) {
        size_t len;
        const char *s = names_get(n, i, &len);

        n->table[find(n, s, len)] = i + 1;
    }
    return 0;
}

int names_intern(struct names *n, const char *s, size_t len, uint32_t *ret)
{
    size_t at;

    if (grow(n) < 0)
        return -ENOMEM;
    at = find(n, s, len);
    if (n->table[at] == 0) {
        buf_add(&n->text, s, len);
        if (n->text.failed)
            return -ENOMEM;
        n->ends[n->count++] = n->text.len;
        n->table[at] = (uint32_t)n->count;
    }
    *ret = n->table[at] - 1;
    return 0;
}
