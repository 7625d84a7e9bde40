/* Unpacks the columns of a sealed block into records. The block may be hostile. */
#include "trace/sealed.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "trace/block.h"

struct slice {
    uint32_t kind, id, field;
    unsigned shift;
    uint64_t count;
    struct cur gaps, deltas;
};

struct cell {
    uint32_t slice; /* index in `slices`, which is sorted by kind, id and field */
    uint64_t value;
};

struct sealed {
    char *plain;
    struct cur meta;
    uint64_t meta_left, meta_at_tick, meta_t_ns;
    struct slice *slices;
    size_t slice_count;
    uint64_t *times;
    /* starts[i] is the index of the first cell of tick i, and starts[i + 1] is the end of its
     * cells */
    uint32_t *starts;
    struct cell *cells;
    size_t tick_count, cell_count, tick;
    struct record_row *rows;
};

void sealed_free(struct sealed *s)
{
    if (!s)
        return;
    free(s->plain);
    free(s->slices);
    free(s->times);
    free(s->starts);
    free(s->cells);
    free(s->rows);
    free(s);
}

static struct cur get_stream(struct cur *c)
{
    size_t len;
    const char *s = cur_blob(c, &len);
    return cur_of(s, len);
}

/* Allocates COUNT + 1 elements, so that NULL means out of memory even if COUNT is 0. */
static void *alloc_array(size_t count, size_t size)
{
    return calloc(count + 1, size);
}

static int get_times(struct sealed *s, struct cur c)
{
    if (s->tick_count > SEALED_TICKS_MAX || s->tick_count > cur_left(&c))
        return -EBADMSG;
    s->times = alloc_array(s->tick_count, sizeof *s->times);
    s->starts = alloc_array(s->tick_count + 1, sizeof *s->starts);
    if (!s->times || !s->starts)
        return -ENOMEM;
    uint64_t t = 0, dt = 0;
    for (size_t i = 0; i < s->tick_count; i++) {
        uint64_t change = (uint64_t)cur_zigzag(&c);
        t += dt + change;
        dt = i ? dt + change : 0;
        s->times[i] = t;
    }
    return c.bad ? -EBADMSG : 0;
}

static int compare_slices(const void *a, const void *b)
{
    const struct slice *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return (x->field > y->field) - (x->field < y->field);
}

static struct cur get_part(struct cur *c, uint64_t len)
{
    if (len > cur_left(c)) {
        c->bad = true;
        len = 0;
    }
    struct cur part = cur_of(c->p, (size_t)len);
    c->p += len;
    return part;
}

static bool slice_ok(const struct slice *x, uint64_t kind, uint64_t id, uint64_t field)
{
    return kind <= UINT32_MAX && id <= UINT32_MAX && x->shift < 64 &&
           (field < SAMPLE_FIELDS_MAX || field == SEALED_STALE_FIELD) &&
           x->count <= cur_left(&x->deltas);
}

static int get_directory(struct sealed *s, struct cur c, struct cur gaps, struct cur deltas)
{
    enum { ENTRY_BYTES_MIN = 7 };
    uint64_t cells = 0;
    if (s->slice_count > cur_left(&c) / ENTRY_BYTES_MIN)
        return -EBADMSG;
    s->slices = alloc_array(s->slice_count, sizeof *s->slices);
    if (!s->slices)
        return -ENOMEM;
    for (size_t i = 0; i < s->slice_count; i++) {
        struct slice *x = &s->slices[i];
        uint64_t kind = cur_varint(&c), id = cur_varint(&c), field = cur_varint(&c);
        uint64_t shift = cur_varint(&c);
        x->count = cur_varint(&c);
        x->gaps = get_part(&gaps, cur_varint(&c));
        x->deltas = get_part(&deltas, cur_varint(&c));
        x->shift = shift < 64 ? (unsigned)shift : 64;
        if (c.bad || gaps.bad || deltas.bad || !slice_ok(x, kind, id, field))
            return -EBADMSG;
        x->kind = (uint32_t)kind;
        x->id = (uint32_t)id;
        x->field = (uint32_t)field;
        /* the sum cannot overflow, because each count is at most the number of bytes that encode
         * it */
        cells += x->count;
    }
    if (cells != s->cell_count || cells > SEALED_CELLS_MAX)
        return -EBADMSG;
    qsort(s->slices, s->slice_count, sizeof *s->slices, compare_slices);
    return 0;
}

/* Iterates over the ticks at which a slice has readings. */
struct walk {
    struct cur gaps;
    uint64_t next, gap, run;
};

static struct walk walk_of(const struct slice *x)
{
    return (struct walk){.gaps = x->gaps, .next = UINT64_MAX};
}

static bool walk_step(struct walk *w, size_t tick_count)
{
    if (w->run == 0) {
        w->gap = cur_varint(&w->gaps);
        w->run = cur_varint(&w->gaps);
        if (w->gaps.bad || w->run == 0 || w->gap >= tick_count)
            return false;
        w->gap++;
    }
    w->run--;
    w->next += w->gap;
    return w->next < tick_count;
}

static int count_per_tick(struct sealed *s)
{
    for (size_t i = 0; i < s->slice_count; i++) {
        struct walk w = walk_of(&s->slices[i]);
        for (uint64_t n = 0; n < s->slices[i].count; n++) {
            if (!walk_step(&w, s->tick_count))
                return -EBADMSG;
            s->starts[w.next + 1]++;
        }
    }
    for (size_t i = 0; i < s->tick_count; i++)
        s->starts[i + 1] += s->starts[i];
    return 0;
}

/* Sorts the cells by tick. Each stored cell advances the start of its tick, so in the end starts[i]
 * is the start of tick i + 1. The starts are therefore shifted back. */
static int scatter(struct sealed *s)
{
    for (size_t i = 0; i < s->slice_count; i++) {
        struct slice *x = &s->slices[i];
        struct walk w = walk_of(x);
        uint64_t v = 0;
        for (uint64_t n = 0; n < x->count; n++) {
            walk_step(&w, s->tick_count);
            v += (uint64_t)cur_zigzag(&x->deltas);
            s->cells[s->starts[w.next]++] = (struct cell){(uint32_t)i, v << x->shift};
        }
        if (x->deltas.bad)
            return -EBADMSG;
    }
    memmove(s->starts + 1, s->starts, s->tick_count * sizeof *s->starts);
    s->starts[0] = 0;
    return 0;
}

static int get_cells(struct sealed *s)
{
    s->cells = alloc_array(s->cell_count, sizeof *s->cells);
    if (!s->cells)
        return -ENOMEM;
    int e = count_per_tick(s);
    if (e == 0)
        e = scatter(s);
    return e;
}

static int alloc_rows(struct sealed *s)
{
    size_t entities = 0;
    for (size_t i = 0; i < s->slice_count; i++)
        entities += i == 0 || s->slices[i].id != s->slices[i - 1].id ||
                    s->slices[i].kind != s->slices[i - 1].kind;
    if (entities > RECORD_ENTITIES_MAX)
        return -EBADMSG;
    s->rows = alloc_array(entities, sizeof *s->rows);
    return s->rows ? 0 : -ENOMEM;
}

static bool next_meta(struct cur *c, uint64_t *tick, uint64_t *t_ns, struct record *ret)
{
    uint64_t skip = cur_varint(c), type = cur_varint(c);
    *tick += skip;
    *t_ns += cur_varint(c);
    *ret = (struct record){.type = (uint32_t)type, .t_ns = *t_ns};
    ret->body = get_stream(c);
    return !c->bad && skip <= SEALED_TICKS_MAX && type <= UINT32_MAX && type != RECORD_TICK;
}

static int check_meta(const struct sealed *s)
{
    struct cur c = s->meta;
    struct record r;
    uint64_t tick = 0, t = 0;
    for (uint64_t i = 0; i < s->meta_left; i++)
        if (!next_meta(&c, &tick, &t, &r) || tick > s->tick_count)
            return -EBADMSG;
    return 0;
}

static int get_streams(struct sealed *s, size_t raw_len)
{
    struct cur c = cur_of(s->plain, raw_len);
    s->meta_left = cur_varint(&c);
    s->tick_count = cur_varint(&c);
    s->slice_count = cur_varint(&c);
    s->cell_count = cur_varint(&c);
    s->meta = get_stream(&c);
    struct cur times = get_stream(&c), directory = get_stream(&c);
    struct cur gaps = get_stream(&c), deltas = get_stream(&c);
    if (c.bad)
        return -EBADMSG;
    int e = get_times(s, times);
    if (e == 0)
        e = get_directory(s, directory, gaps, deltas);
    if (e == 0)
        e = alloc_rows(s);
    if (e == 0)
        e = check_meta(s);
    if (e == 0)
        e = get_cells(s);
    return e;
}

int sealed_open(const void *stored, size_t stored_len, size_t raw_len, struct sealed **ret)
{
    struct sealed *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    int e = pack_open(stored, stored_len, raw_len, &s->plain);
    if (e == 0)
        e = get_streams(s, raw_len);
    if (e < 0) {
        sealed_free(s);
        return e;
    }
    *ret = s;
    return 0;
}

static void put_in_row(struct record_row *row, const struct slice *x, uint64_t value)
{
    if (x->field == SEALED_STALE_FIELD) {
        row->stale = (uint32_t)value;
        return;
    }
    row->read |= 1u << x->field;
    row->v[x->field] = value;
}

static void next_tick(struct sealed *s, struct record *ret)
{
    size_t count = 0;
    const struct slice *before = NULL;
    for (uint32_t i = s->starts[s->tick]; i < s->starts[s->tick + 1]; i++) {
        const struct slice *x = &s->slices[s->cells[i].slice];
        if (!before || x->id != before->id || x->kind != before->kind) {
            struct record_row *row = &s->rows[count++];
            row->kind = x->kind;
            row->id = x->id;
            row->read = row->stale = 0;
            before = x;
        }
        put_in_row(&s->rows[count - 1], x, s->cells[i].value);
    }
    *ret = (struct record){.type = RECORD_TICK, .t_ns = s->times[s->tick]};
    ret->rows = s->rows;
    ret->count = count;
    s->tick++;
}

int sealed_next(struct sealed *s, struct record *ret)
{
    if (s->meta_left > 0) {
        struct cur c = s->meta;
        uint64_t tick = s->meta_at_tick, t = s->meta_t_ns;
        next_meta(&c, &tick, &t, ret);
        if (tick <= s->tick) {
            s->meta = c;
            s->meta_at_tick = tick;
            s->meta_t_ns = t;
            s->meta_left--;
            return 1;
        }
    }
    if (s->tick == s->tick_count)
        return 0;
    next_tick(s, ret);
    return 1;
}
