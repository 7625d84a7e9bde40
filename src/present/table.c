/* Orders the rows of the process table: children below their parents, siblings by the chosen
 * value, folded branches hidden. */
#include "present/table.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

/* A row as a node of the process tree; an index of -1 means none. */
struct table_node {
    int32_t parent, first, next; /* parent, first child and next sibling */
    uint32_t mark; /* first the number of the walk that visited the row, later the row's line */
};

void table_fini(struct table *t)
{
    free(t->folded);
    free(t->lines);
    free(t->nodes);
    free(t->order);
    *t = (struct table){0};
}

static int table_reserve(struct table *t, size_t count)
{
    size_t cap = count + count / 2;
    if (count <= t->cap)
        return 0;
    free(t->lines);
    free(t->nodes);
    free(t->order);
    t->lines = calloc(cap, sizeof *t->lines);
    t->nodes = calloc(cap, sizeof *t->nodes);
    t->order = calloc(cap, sizeof *t->order);
    t->cap = t->lines && t->nodes && t->order ? cap : 0;
    return t->cap ? 0 : -ENOMEM;
}

/* ---- order ---- */

struct sorting {
    const struct frame_row *rows;
    enum table_sort sort;
    bool is_reversed;
};

/* Returns the value to sort by: the largest comes first, unknown values last. */
static double sort_value(const struct frame_row *r, enum table_sort sort)
{
    static const unsigned fields[] = {[SORT_RSS] = SAMPLE_RSS,
                                      [SORT_ANON] = SAMPLE_ANON,
                                      [SORT_UNIQUE] = SAMPLE_UNIQUE,
                                      [SORT_GPU] = SAMPLE_GPU};
    if (sort == SORT_PID)
        return -r->info.id.pid;
    if (sort == SORT_RATE)
        return r->rate_known ? r->rate_bytes_per_min : -HUGE_VAL;
    return sample_has(&r->sample, fields[sort]) ? (double)r->sample.v[fields[sort]] : -1;
}

static int compare_rows(const void *a, const void *b, void *user)
{
    const struct sorting *s = user;
    const struct frame_row *x = &s->rows[*(const uint32_t *)a];
    const struct frame_row *y = &s->rows[*(const uint32_t *)b];
    double v = sort_value(x, s->sort), w = sort_value(y, s->sort);
    if (v != w)
        return (v < w) == s->is_reversed ? -1 : 1;
    if (x->info.id.pid != y->info.id.pid)
        return x->info.id.pid < y->info.id.pid ? -1 : 1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

/* Finds a row by pid. ORDER must be sorted by pid. */
static int32_t row_of_pid(const struct table *t, const struct frame_row *rows, size_t count,
                          int32_t pid)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (rows[t->order[mid]].info.id.pid < pid)
            low = mid + 1;
        else
            high = mid;
    }
    return low < count && rows[t->order[low]].info.id.pid == pid ? (int32_t)t->order[low] : -1;
}

static void find_parents(struct table *t, const struct frame_row *rows, size_t count)
{
    struct sorting by_pid = {.rows = rows, .sort = SORT_PID};
    qsort_r(t->order, count, sizeof *t->order, compare_rows, &by_pid);
    for (size_t i = 0; i < count; i++)
        t->nodes[i].parent = row_of_pid(t, rows, count, rows[i].info.ppid);
    /* Walks from each row to its ancestors, up to a row that was already visited. If the current
     * walk itself visited that row, the rows form a cycle, which is broken there. */
    for (size_t i = 0; i < count; i++) {
        uint32_t mine = (uint32_t)i + 1;
        int32_t at = (int32_t)i;
        for (; at >= 0 && t->nodes[at].mark == 0; at = t->nodes[at].parent)
            t->nodes[at].mark = mine;
        if (at >= 0 && t->nodes[at].mark == mine)
            t->nodes[at].parent = -1;
        for (at = (int32_t)i; at >= 0 && t->nodes[at].mark == mine; at = t->nodes[at].parent)
            t->nodes[at].mark = UINT32_MAX;
    }
}

/* ---- lines ---- */

/* Links the sorted rows below their parents. Returns the first root. */
static int32_t link_children(struct table *t, size_t count)
{
    int32_t root = -1;
    for (size_t i = count; i-- > 0;) {
        struct table_node *n = &t->nodes[t->order[i]];
        int32_t *first = n->parent < 0 ? &root : &t->nodes[n->parent].first;
        n->next = *first;
        *first = (int32_t)t->order[i];
    }
    return root;
}

/* Lays out lines depth first, and counts the descendants of each line on the way back. */
static void lay_out(struct table *t, const struct frame_row *rows, int32_t row)
{
    uint32_t depth = 0;
    t->count = 0;
    while (row >= 0) {
        t->nodes[row].mark = (uint32_t)t->count;
        t->lines[t->count++] =
            (struct table_line){.row = (uint32_t)row, .slot = rows[row].slot, .depth = depth};
        if (t->nodes[row].first >= 0) {
            row = t->nodes[row].first;
            depth++;
            continue;
        }
        for (; row >= 0 && t->nodes[row].next < 0; depth--) {
            row = t->nodes[row].parent;
            if (row >= 0)
                t->lines[t->nodes[row].mark].below = (uint32_t)t->count - 1 - t->nodes[row].mark;
        }
        row = row >= 0 ? t->nodes[row].next : -1;
    }
}

/* Returns the index of SLOT in `folded`. If SLOT is not in `folded`, returns the index at which to
 * insert it. */
static size_t folded_at(const struct table *t, uint32_t slot, bool *ret_is)
{
    size_t low = 0, high = t->folded_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (t->folded[mid] < slot)
            low = mid + 1;
        else
            high = mid;
    }
    *ret_is = low < t->folded_count && t->folded[low] == slot;
    return low;
}

static void hide_folded(struct table *t)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct table_line line = t->lines[i];
        folded_at(t, line.slot, &line.is_folded);
        line.is_folded = line.is_folded && line.below > 0;
        t->lines[kept++] = line;
        if (line.is_folded)
            i += line.below;
    }
    t->count = kept;
}

int table_build(struct table *t, const struct frame_row *rows, size_t count)
{
    struct sorting sorting = {rows, t->sort, t->is_reversed};
    t->count = 0;
    if (count > INT32_MAX || table_reserve(t, count) < 0)
        return -ENOMEM;
    if (count == 0)
        return 0;
    for (size_t i = 0; i < count; i++) {
        t->order[i] = (uint32_t)i;
        t->nodes[i] = (struct table_node){.parent = -1, .first = -1, .next = -1};
    }
    if (!t->is_flat)
        find_parents(t, rows, count);
    qsort_r(t->order, count, sizeof *t->order, compare_rows, &sorting);
    lay_out(t, rows, link_children(t, count));
    hide_folded(t);
    return 0;
}

/* ---- folding ---- */

void table_toggle(struct table *t, uint32_t slot)
{
    bool is_folded;
    size_t at = folded_at(t, slot, &is_folded);
    if (!is_folded && !ARRAY_ROOM(t->folded, t->folded_count, t->folded_cap))
        return; /* nothing is folded if memory cannot be allocated */
    size_t behind = (t->folded_count - at) * sizeof *t->folded;
    if (is_folded) {
        memmove(t->folded + at, t->folded + at + 1, behind - sizeof *t->folded);
        t->folded_count--;
        return;
    }
    memmove(t->folded + at + 1, t->folded + at, behind);
    t->folded[at] = slot;
    t->folded_count++;
}

void table_fold_all(struct table *t)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->lines[i].below > 0 && !t->lines[i].is_folded)
            table_toggle(t, t->lines[i].slot);
}

void table_unfold_all(struct table *t)
{
    t->folded_count = 0;
}

/* ---- tree prefixes ---- */

char *table_prefix(const struct table *t, const struct table_line *line, size_t width,
                   char out[TABLE_PREFIX_MAX])
{
    enum { LEVELS_MAX = 24, COLUMNS_PER_LEVEL = 3 };
    const char *pieces[LEVELS_MAX];
    size_t room = width / COLUMNS_PER_LEVEL < LEVELS_MAX ? width / COLUMNS_PER_LEVEL : LEVELS_MAX;
    size_t shown = line->depth < room ? line->depth : room;
    bool is_cut = line->depth > shown;
    int32_t row = (int32_t)line->row;
    for (size_t i = shown; i-- > 0; row = t->nodes[row].parent) {
        bool is_last = t->nodes[row].next < 0;
        pieces[i] = i + 1 == shown ? (is_last ? "└─ " : "├─ ") : (is_last ? "   " : "│  ");
    }
    char *at = stpcpy(out, is_cut && width > 0 ? "…" : "");
    for (size_t i = is_cut && shown > 0; i < shown;
         i++) /* the prefix takes at most 3 + 24 * 7 bytes */
        at = stpcpy(at, pieces[i]);
    return out;
}
