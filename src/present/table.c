/* Which row comes where: parents by pid, siblings by the chosen figure, folded branches out. */
#include "present/table.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void table_fini(struct table *t)
{
    free(t->folded);
    free(t->lines);
    free(t->parent);
    free(t->is_last);
    free(t->order);
    free(t->place);
    *t = (struct table){0};
}

static int grow(void *array, size_t count, size_t size)
{
    void *p = reallocarray(*(void **)array, count, size);
    if (!p)
        return -ENOMEM;
    *(void **)array = p;
    return 0;
}

static int table_reserve(struct table *t, size_t count)
{
    if (count <= t->cap)
        return 0;
    size_t cap = count + count / 2 + 16;
    if (grow(&t->lines, cap, sizeof *t->lines) < 0 ||
        grow(&t->parent, cap, sizeof *t->parent) < 0 ||
        grow(&t->is_last, cap, sizeof *t->is_last) < 0 ||
        grow(&t->order, cap, sizeof *t->order) < 0 || grow(&t->place, cap, sizeof *t->place) < 0)
        return -ENOMEM; /* those that have grown stay so; cap tells the least of them */
    t->cap = cap;
    return 0;
}

/* ---- order ---- */

struct sorting {
    const struct table *table;
    const struct frame_row *rows;
};

static int by_number(double a, double b)
{
    return (a < b) - (a > b); /* greatest first */
}

static int by_bytes(const struct frame_bytes *a, const struct frame_bytes *b)
{
    if (a->known != b->known)
        return a->known ? -1 : 1;
    return a->known ? (a->bytes < b->bytes) - (a->bytes > b->bytes) : 0;
}

static int by_figure(enum table_sort sort, const struct frame_row *a, const struct frame_row *b)
{
    switch (sort) {
    case SORT_RSS:
        return by_bytes(&a->rss, &b->rss);
    case SORT_ANON:
        return by_bytes(&a->anon, &b->anon);
    case SORT_UNIQUE:
        return by_bytes(&a->unique, &b->unique);
    case SORT_GPU:
        return by_bytes(&a->gpu, &b->gpu);
    case SORT_RATE:
        if (a->rate_known != b->rate_known)
            return a->rate_known ? -1 : 1;
        return a->rate_known ? by_number(a->rate_bytes_per_min, b->rate_bytes_per_min) : 0;
    case SORT_PID:
        break;
    }
    return (a->pid > b->pid) - (a->pid < b->pid);
}

/* Siblings together, roots first. */
static int compare(const void *pa, const void *pb, void *user)
{
    const struct sorting *s = user;
    uint32_t a = *(const uint32_t *)pa;
    uint32_t b = *(const uint32_t *)pb;
    const struct frame_row *ra = &s->rows[a];
    const struct frame_row *rb = &s->rows[b];
    int32_t up_a = s->table->parent[a];
    int32_t up_b = s->table->parent[b];
    if (up_a != up_b)
        return up_a < up_b ? -1 : 1;
    int r = by_figure(s->table->sort, ra, rb);
    if (r != 0)
        return s->table->is_reversed ? -r : r;
    if (ra->pid != rb->pid)
        return ra->pid < rb->pid ? -1 : 1;
    return (ra->slot > rb->slot) - (ra->slot < rb->slot);
}

static int compare_pids(const void *pa, const void *pb, void *user)
{
    const struct frame_row *rows = user;
    int32_t a = rows[*(const uint32_t *)pa].pid;
    int32_t b = rows[*(const uint32_t *)pb].pid;
    return (a > b) - (a < b);
}

/* ORDER holds the rows by pid. */
static int32_t row_of_pid(const struct table *t, const struct frame_row *rows, size_t count,
                          int32_t pid)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (rows[t->order[mid]].pid < pid)
            low = mid + 1;
        else
            high = mid;
    }
    return low < count && rows[t->order[low]].pid == pid ? (int32_t)t->order[low] : -1;
}

static void find_parents(struct table *t, const struct frame_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        t->order[i] = (uint32_t)i;
    if (!t->is_flat)
        qsort_r(t->order, count, sizeof *t->order, compare_pids, (void *)(uintptr_t)rows);
    for (size_t i = 0; i < count; i++)
        t->parent[i] = t->is_flat ? -1 : row_of_pid(t, rows, count, rows[i].ppid);
}

/* Walks up from each row over those not yet settled; who is met again on the same way up is in a
 * circle, which is cut there. */
static void cut_circles(struct table *t, size_t count)
{
    const uint32_t settled = UINT32_MAX;
    uint32_t *mark = t->place;
    memset(mark, 0, count * sizeof *mark);
    for (size_t i = 0; i < count; i++) {
        uint32_t mine = (uint32_t)i + 1;
        int32_t at = (int32_t)i;
        while (at >= 0 && mark[at] == 0) {
            mark[at] = mine;
            at = t->parent[at];
        }
        if (at >= 0 && mark[at] == mine)
            t->parent[at] = -1;
        for (at = (int32_t)i; at >= 0 && mark[at] == mine; at = t->parent[at])
            mark[at] = settled;
    }
}

/* ---- lines ---- */

/* Where the children of PARENT begin in the sorted order. */
static size_t children_of(const struct table *t, size_t count, int32_t parent)
{
    size_t low = 0, high = count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (t->parent[t->order[mid]] < parent)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static bool is_child(const struct table *t, size_t count, size_t at, int32_t parent)
{
    return at < count && t->parent[t->order[at]] == parent;
}

/* Depth first, without recursion: from the last of its siblings back up to where the parent stands
 * in the order, and on. */
static void lay_out(struct table *t, size_t count)
{
    uint32_t depth = 0;
    t->count = 0;
    for (size_t i = 0; i < count; i++)
        t->place[t->order[i]] = (uint32_t)i;
    for (size_t at = 0; depth > 0 || is_child(t, count, at, -1);) {
        uint32_t row = t->order[at];
        t->is_last[row] = !is_child(t, count, at + 1, t->parent[row]);
        t->lines[t->count++] = (struct table_line){.row = row, .depth = depth};
        size_t down = children_of(t, count, (int32_t)row);
        if (is_child(t, count, down, (int32_t)row)) {
            at = down;
            depth++;
            continue;
        }
        for (; depth > 0 && t->is_last[row]; depth--)
            row = (uint32_t)t->parent[row];
        at = t->place[row] + 1;
    }
}

static bool is_folded(const struct table *t, uint32_t slot)
{
    size_t low = 0, high = t->folded_count;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (t->folded[mid] < slot)
            low = mid + 1;
        else
            high = mid;
    }
    return low < t->folded_count && t->folded[low] == slot;
}

/* Counts what is below each line, from the end: PARENT's line comes before its children's. */
static void count_below(struct table *t)
{
    for (size_t i = 0; i < t->count; i++)
        t->place[t->lines[i].row] = (uint32_t)i;
    for (size_t i = t->count; i-- > 0;) {
        int32_t up = t->parent[t->lines[i].row];
        if (up >= 0)
            t->lines[t->place[up]].below += t->lines[i].below + 1;
    }
}

static void hide_folded(struct table *t, const struct frame_row *rows)
{
    size_t kept = 0;
    for (size_t i = 0; i < t->count; i++) {
        struct table_line line = t->lines[i];
        line.is_folded = line.below > 0 && is_folded(t, rows[line.row].slot);
        t->lines[kept++] = line;
        if (line.is_folded)
            i += line.below;
    }
    t->count = kept;
}

int table_build(struct table *t, const struct frame_row *rows, size_t count)
{
    t->count = 0;
    if (count > INT32_MAX || table_reserve(t, count) < 0)
        return -ENOMEM;
    if (count == 0)
        return 0;
    find_parents(t, rows, count);
    cut_circles(t, count);
    struct sorting sorting = {t, rows};
    qsort_r(t->order, count, sizeof *t->order, compare, &sorting);
    lay_out(t, count);
    count_below(t);
    hide_folded(t, rows);
    return 0;
}

/* ---- folding ---- */

void table_toggle(struct table *t, uint32_t slot)
{
    size_t at = 0;
    while (at < t->folded_count && t->folded[at] < slot)
        at++;
    if (at < t->folded_count && t->folded[at] == slot) {
        t->folded_count--;
        memmove(t->folded + at, t->folded + at + 1, (t->folded_count - at) * sizeof *t->folded);
        return;
    }
    if (t->folded_count == t->folded_cap) {
        if (grow(&t->folded, t->folded_cap * 2 + 16, sizeof *t->folded) < 0)
            return; /* nothing folds: the lesser evil */
        t->folded_cap = t->folded_cap * 2 + 16;
    }
    memmove(t->folded + at + 1, t->folded + at, (t->folded_count - at) * sizeof *t->folded);
    t->folded[at] = slot;
    t->folded_count++;
}

void table_fold_all(struct table *t, const struct frame_row *rows)
{
    for (size_t i = 0; i < t->count; i++)
        if (t->lines[i].below > 0 && !is_folded(t, rows[t->lines[i].row].slot))
            table_toggle(t, rows[t->lines[i].row].slot);
}

void table_unfold_all(struct table *t)
{
    t->folded_count = 0;
}

/* ---- the drawn branches ---- */

/* Writes PIECE at AT, within OUT; the new end. */
static char *branch_add(char *at, const char *out, const char *piece)
{
    size_t left = TABLE_PREFIX_MAX - (size_t)(at - out);
    size_t len = strlen(piece);
    if (len >= left)
        return at;
    memcpy(at, piece, len + 1);
    return at + len;
}

char *table_prefix(const struct table *t, const struct table_line *line, size_t width,
                   char out[TABLE_PREFIX_MAX])
{
    enum { LEVELS_MAX = 24, COLUMNS_PER_LEVEL = 3 };
    bool is_last[LEVELS_MAX];
    size_t levels = line->depth;
    size_t room = width / COLUMNS_PER_LEVEL < LEVELS_MAX ? width / COLUMNS_PER_LEVEL : LEVELS_MAX;
    size_t shown = levels < room ? levels : room;
    int32_t row = (int32_t)line->row;
    char *at = out;
    *at = '\0';
    for (size_t i = shown; i-- > 0; row = t->parent[row])
        is_last[i] = t->is_last[row];
    if (levels > shown && width > 0)
        at = branch_add(at, out, "…");
    for (size_t i = levels > shown && shown == room && shown > 0; i < shown; i++) {
        if (i + 1 == shown)
            at = branch_add(at, out, is_last[i] ? "└─ " : "├─ ");
        else
            at = branch_add(at, out, is_last[i] ? "   " : "│  ");
    }
    return out;
}
