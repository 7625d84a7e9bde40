/* Rearranges records into columns and compresses them. */
#include "trace/sealed.h"

#include <errno.h>
#include <stdlib.h>

#include "trace/block.h"

/* zstd's default tables for this level would need 3 MB and reduce the size by less than 1 %. */
static const struct pack_effort effort = {.level = 6, .window_log = 18, .table_log = 16};

/* One column: all readings of one field of one entity, and their ticks. */
struct column {
    uint32_t kind, id, field;
    /* the column's cells have the indices `at` to `at + count - 1` */
    uint32_t count, at;
};

struct packer {
    struct record_decoder decoder;
    /* ordered by entity and field while cells are counted and copied, and by kind and field for
     * compression */
    struct column *columns;
    size_t column_count;
    uint32_t *ticks;  /* tick of each cell */
    uint64_t *values; /* value of each cell */
    uint64_t tick_count, cell_count, meta_count;
    uint64_t last_t_ns, last_dt_ns, meta_t_ns, meta_tick;
    struct buf meta, times, directory, gaps, deltas;
};

static void packer_fini(struct packer *p)
{
    record_decoder_fini(&p->decoder);
    free(p->columns);
    free(p->ticks);
    free(p->values);
    buf_fini(&p->meta);
    buf_fini(&p->times);
    buf_fini(&p->directory);
    buf_fini(&p->gaps);
    buf_fini(&p->deltas);
}

/* Counts the cells, so that the arrays can be allocated. */
static int count_cells(struct packer *p, struct cur records)
{
    struct record r;
    int e;
    uint64_t cells = 0, ticks = 0;
    while ((e = record_decode(&p->decoder, &records, &r)) > 0) {
        ticks += r.type == RECORD_TICK;
        for (size_t i = 0; i < r.count; i++)
            cells += (unsigned)__builtin_popcount(r.rows[i].read) + (r.rows[i].stale != 0);
    }
    if (e < 0)
        return e;
    if (cells > SEALED_CELLS_MAX || ticks > SEALED_TICKS_MAX)
        return -EFBIG;
    p->column_count = p->decoder.count * RECORD_COLUMNS;
    p->columns = calloc(p->column_count + 1, sizeof *p->columns);
    p->ticks = malloc((cells + 1) * sizeof *p->ticks);
    p->values = malloc((cells + 1) * sizeof *p->values);
    if (!p->columns || !p->ticks || !p->values)
        return -ENOMEM;
    p->cell_count = cells;
    return 0;
}

static int count_columns(struct packer *p, struct cur records)
{
    struct record r;
    int e;
    record_decoder_restart(&p->decoder);
    while ((e = record_decode(&p->decoder, &records, &r)) > 0)
        for (size_t i = 0; i < r.count; i++) {
            const struct record_row *row = &r.rows[i];
            struct column *columns = &p->columns[row->index * RECORD_COLUMNS];
            for (uint32_t left = row->read; left; left &= left - 1)
                columns[__builtin_ctz(left)].count++;
            columns[RECORD_STALE_COLUMN].count += row->stale != 0;
        }
    uint32_t at = 0;
    for (size_t i = 0; i < p->column_count; i++) {
        struct column *c = &p->columns[i];
        unsigned field = (unsigned)(i % RECORD_COLUMNS);
        c->kind = p->decoder.entities[i / RECORD_COLUMNS].kind;
        c->id = p->decoder.entities[i / RECORD_COLUMNS].id;
        c->field = field == RECORD_STALE_COLUMN ? SEALED_STALE_FIELD : field;
        c->at = at;
        at += c->count;
        /* put_cell counts the cells again */
        c->count = 0;
    }
    return e;
}

static void put_cell(struct packer *p, struct column *c, uint64_t value)
{
    p->ticks[c->at + c->count] = (uint32_t)p->tick_count;
    p->values[c->at + c->count] = value;
    c->count++;
}

/* Copies the cells of a tick. Stores the interval between this tick and the last one as a
 * difference from the previous interval: ticks are almost equally spaced, so this difference takes
 * few bytes. */
static void put_tick(struct packer *p, const struct record *r)
{
    for (size_t i = 0; i < r->count; i++) {
        const struct record_row *row = &r->rows[i];
        struct column *columns = &p->columns[row->index * RECORD_COLUMNS];
        for (uint32_t left = row->read; left; left &= left - 1) {
            unsigned f = (unsigned)__builtin_ctz(left);
            put_cell(p, &columns[f], row->v[f]);
        }
        if (row->stale)
            put_cell(p, &columns[RECORD_STALE_COLUMN], row->stale);
    }
    uint64_t dt = r->t_ns - p->last_t_ns;
    buf_add_zigzag(&p->times, (int64_t)(dt - p->last_dt_ns));
    p->last_dt_ns = p->tick_count ? dt : 0;
    p->last_t_ns = r->t_ns;
    p->tick_count++;
}

static void put_meta(struct packer *p, const struct record *r)
{
    buf_add_varint(&p->meta, p->tick_count - p->meta_tick);
    record_add(&p->meta, r->type, r->t_ns - p->meta_t_ns, r->body.p, cur_left(&r->body));
    p->meta_tick = p->tick_count;
    p->meta_t_ns = r->t_ns;
    p->meta_count++;
}

static int fill(struct packer *p, struct cur records)
{
    struct record r;
    int e;
    record_decoder_restart(&p->decoder);
    while ((e = record_decode(&p->decoder, &records, &r)) > 0) {
        if (r.type == RECORD_TICK)
            put_tick(p, &r);
        else
            put_meta(p, &r);
    }
    return e;
}

/* Orders columns by kind and field, so that similar columns are adjacent and compress better. */
static int compare_columns(const void *a, const void *b)
{
    const struct column *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (x->field != y->field)
        return x->field < y->field ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Writes the ticks at which the column has readings, as runs of equally spaced ticks. Each run is a
 * pair: the distance minus 1, and the length of the run. */
static void put_gaps(struct packer *p, const struct column *c)
{
    const uint32_t *ticks = p->ticks + c->at;
    uint32_t before = UINT32_MAX; /* -1, so that the distance of tick 0 is 1 */
    for (uint32_t i = 0; i < c->count;) {
        uint32_t gap = ticks[i] - before, run = 1;
        while (i + run < c->count && ticks[i + run] - ticks[i + run - 1] == gap)
            run++;
        buf_add_varint(&p->gaps, gap - 1);
        buf_add_varint(&p->gaps, run);
        i += run;
        before = ticks[i - 1];
    }
}

/* Writes the differences between successive values. Values from the kernel are multiples of a page
 * or of 1 KiB, so the number of zero bits at the end that all values share is stored once. */
static unsigned put_deltas(struct packer *p, const struct column *c)
{
    const uint64_t *v = p->values + c->at;
    uint64_t any = 0;
    for (uint32_t i = 0; i < c->count; i++)
        any |= v[i];
    unsigned shift = any ? (unsigned)__builtin_ctzll(any) : 0;
    uint64_t last = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        uint64_t now = v[i] >> shift;
        buf_add_zigzag(&p->deltas, (int64_t)(now - last));
        last = now;
    }
    return shift;
}

static uint64_t put_columns(struct packer *p)
{
    uint64_t used = 0;
    qsort(p->columns, p->column_count, sizeof *p->columns, compare_columns);
    for (size_t i = 0; i < p->column_count; i++) {
        const struct column *c = &p->columns[i];
        if (c->count == 0)
            continue;
        size_t gaps = p->gaps.len, deltas = p->deltas.len;
        put_gaps(p, c);
        unsigned shift = put_deltas(p, c);
        buf_add_varint(&p->directory, c->kind);
        buf_add_varint(&p->directory, c->id);
        buf_add_varint(&p->directory, c->field);
        buf_add_varint(&p->directory, shift);
        buf_add_varint(&p->directory, c->count);
        buf_add_varint(&p->directory, p->gaps.len - gaps);
        buf_add_varint(&p->directory, p->deltas.len - deltas);
        used++;
    }
    return used;
}

static void add_stream(struct buf *out, const struct buf *stream)
{
    buf_add_blob(out, stream->data, stream->len);
    out->failed |= stream->failed;
}

static void put_streams(struct packer *p, struct buf *out)
{
    uint64_t columns = put_columns(p);
    buf_add_varint(out, p->meta_count);
    buf_add_varint(out, p->tick_count);
    buf_add_varint(out, columns);
    buf_add_varint(out, p->cell_count);
    add_stream(out, &p->meta);
    add_stream(out, &p->times);
    add_stream(out, &p->directory);
    add_stream(out, &p->gaps);
    add_stream(out, &p->deltas);
}

int sealed_pack(const void *records, size_t len, struct buf *ret, uint32_t *ret_raw_len)
{
    struct packer p = {0};
    struct buf plain = {0};
    struct cur c = cur_of(records, len);
    int e = count_cells(&p, c);
    if (e == 0)
        e = count_columns(&p, c);
    if (e == 0)
        e = fill(&p, c);
    if (e == 0)
        put_streams(&p, &plain);
    packer_fini(&p);
    if (e == 0 && plain.failed)
        e = -ENOMEM;
    if (e == 0 && plain.len > UINT32_MAX)
        e = -EFBIG;
    if (e == 0)
        e = pack_add(ret, plain.data, plain.len, &effort);
    if (e == 0)
        *ret_raw_len = (uint32_t)plain.len;
    buf_fini(&plain);
    return e;
}
