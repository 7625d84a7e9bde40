/* The groups of a table, by name: bounded in number, and the ones with the most rows are kept. */
#include "cli/verdict_csv_private.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/span.h"

static uint64_t hash_of(const char *s, size_t len)
{
    uint64_t h = UINT64_C(14695981039346656037); /* FNV-1a */
    for (size_t i = 0; i < len; i++)
        h = (h ^ (unsigned char)s[i]) * UINT64_C(1099511628211);
    return h;
}

void judged_group_free(struct judged_group *g)
{
    if (g)
        free(g->name);
    free(g);
}

static size_t slot_of(const struct judged_table *t, uint64_t hash, const char *s, size_t len)
{
    size_t at = hash & (TABLE_SIZE - 1);
    for (; t->index[at]; at = (at + 1) & (TABLE_SIZE - 1)) {
        const struct judged_group *g = t->groups[t->index[at] - 1];
        if (g->hash == hash && g->len == len && memcmp(g->name, s, len) == 0)
            break;
    }
    return at;
}

static int by_rows(const void *a, const void *b)
{
    const struct judged_group *x = *(const struct judged_group *const *)a;
    const struct judged_group *y = *(const struct judged_group *const *)b;
    if (x->rows != y->rows)
        return x->rows < y->rows ? 1 : -1;
    return x->last_row < y->last_row ? 1 : -1;
}

/* No room: of the groups with the fewest rows, and longest without one, half go. */
static void drop_half(struct judged_table *t)
{
    qsort(t->groups, t->count, sizeof(struct judged_group *), by_rows);
    for (size_t i = GROUPS_MAX / 2; i < t->count; i++) {
        t->dropped_groups++;
        t->dropped_rows += t->groups[i]->rows;
        judged_group_free(t->groups[i]);
    }
    t->count = GROUPS_MAX / 2;
    memset(t->index, 0, TABLE_SIZE * sizeof *t->index);
    for (size_t i = 0; i < t->count; i++) {
        const struct judged_group *g = t->groups[i];
        t->index[slot_of(t, g->hash, g->name, g->len)] = (uint32_t)i + 1;
    }
}

static bool has_own_marks(const struct judged_table *t, int32_t pid)
{
    for (size_t i = 0; pid > 0 && t->has_lead && i < t->marks_count; i++)
        if (t->marks[i].mark.kind == MARK_STEP && t->marks[i].mark.pid == pid)
            return true;
    return false;
}

static struct judged_group *group_new(const struct judged_table *t, const char *name, size_t len)
{
    struct judged_group *g = calloc(1, sizeof *g);
    int64_t pid;
    if (!g)
        return NULL;
    g->name = span_copy((struct span){name, len});
    g->len = len;
    if (!g->name || verdict_init(&g->series, &t->options->verdict) < 0) {
        judged_group_free(g);
        return NULL;
    }
    if (number_parse_i64(name, len, &pid) == 0 && pid > 0 && pid <= INT32_MAX)
        g->pid = (int32_t)pid;
    g->speaks = has_own_marks(t, g->pid);
    g->tail.is_table = true;
    return g;
}

struct judged_group *judged_group_of(struct judged_table *t, const char *name, size_t len)
{
    uint64_t hash = hash_of(name, len);
    size_t at = slot_of(t, hash, name, len);
    if (t->index[at])
        return t->groups[t->index[at] - 1];
    if (t->count == GROUPS_MAX) {
        drop_half(t);
        at = slot_of(t, hash, name, len);
    }
    struct judged_group *g = group_new(t, name, len);
    if (!g)
        return NULL;
    g->hash = hash;
    t->groups[t->count++] = g;
    t->index[at] = (uint32_t)t->count;
    return g;
}
