/* Encodes and decodes records. The bytes may be hostile. */
#include "trace/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"

void record_add(struct buf *out, uint32_t type, uint64_t dt_ns, const void *body, size_t len)
{
    buf_add_varint(out, type);
    buf_add_varint(out, dt_ns);
    buf_add_blob(out, body, len);
}

void record_add_row(struct buf *out, uint32_t index, const struct sample *sample,
                    uint64_t last[SAMPLE_FIELDS_MAX])
{
    uint32_t read = sample->read & ((1u << SAMPLE_FIELDS_MAX) - 1);
    buf_add_varint(out, index);
    buf_add_varint(out, (uint64_t)read << 1 | (sample->stale ? 1 : 0));
    for (unsigned f = 0; f < SAMPLE_FIELDS_MAX; f++) {
        if (!(read >> f & 1))
            continue;
        buf_add_zigzag(out, (int64_t)(sample->v[f] - last[f]));
        last[f] = sample->v[f];
    }
    if (sample->stale)
        buf_add_varint(out, sample->stale);
}

void record_add_process(struct buf *out, const struct process_info *info)
{
    buf_add_zigzag(out, info->id.pid);
    buf_add_varint(out, info->id.start_ticks);
    buf_add_zigzag(out, info->ppid);
    buf_add_varint(out, info->uid);
    buf_add_varint(out, (uint64_t)info->role);
    buf_add_blob(out, info->comm,
                 info->comm_len < PROCESS_COMM_MAX ? info->comm_len : PROCESS_COMM_MAX);
    buf_add_blob(out, info->cmdline,
                 info->cmdline_len < PROCESS_CMDLINE_MAX ? info->cmdline_len : PROCESS_CMDLINE_MAX);
}

static int32_t get_i32(struct cur *c)
{
    int64_t v = cur_zigzag(c);
    if (v < INT32_MIN || v > INT32_MAX)
        c->bad = true;
    return (int32_t)v;
}

static uint32_t get_u32(struct cur *c)
{
    uint64_t v = cur_varint(c);
    if (v > UINT32_MAX)
        c->bad = true;
    return (uint32_t)v;
}

static uint16_t get_bytes(struct cur *c, char *ret, size_t max)
{
    size_t len;
    const char *s = cur_blob(c, &len);
    if (len > max) {
        c->bad = true;
        len = 0;
    }
    memcpy(ret, s, len);
    return (uint16_t)len;
}

int record_get_process(struct cur *c, struct process_info *ret)
{
    struct process_info info = {0};
    info.id.pid = get_i32(c);
    info.id.start_ticks = cur_varint(c);
    info.ppid = get_i32(c);
    info.uid = get_u32(c);
    uint64_t role = cur_varint(c);
    info.role = role < ROLE_COUNT ? (enum process_role)role : ROLE_OTHER;
    info.comm_len = get_bytes(c, info.comm, PROCESS_COMM_MAX);
    info.cmdline_len = get_bytes(c, info.cmdline, PROCESS_CMDLINE_MAX);
    if (c->bad)
        return -EBADMSG;
    *ret = info;
    return 0;
}

void record_decoder_fini(struct record_decoder *d)
{
    free(d->entities);
    free(d->rows);
    *d = (struct record_decoder){0};
}

void record_decoder_restart(struct record_decoder *d)
{
    d->t_ns = 0;
    d->count = 0;
}

static int decode_use(struct record_decoder *d, struct cur *body)
{
    uint32_t kind = get_u32(body), id = get_u32(body);
    if (body->bad || d->count >= RECORD_ENTITIES_MAX)
        return -EBADMSG;
    if (!ARRAY_ROOM(d->entities, d->count, d->cap))
        return -ENOMEM;
    d->entities[d->count++] = (struct record_entity){.kind = kind, .id = id};
    return 0;
}

static int decode_row(struct record_decoder *d, struct cur *body, struct record_row *ret)
{
    uint64_t index = cur_varint(body), mask = cur_varint(body);
    if (body->bad || index >= d->count || mask >> 1 >> SAMPLE_FIELDS_MAX)
        return -EBADMSG;
    struct record_entity *e = &d->entities[index];
    ret->kind = e->kind;
    ret->id = e->id;
    ret->index = (uint32_t)index;
    ret->read = (uint32_t)(mask >> 1);
    for (uint32_t left = ret->read; left; left &= left - 1) {
        unsigned f = (unsigned)__builtin_ctz(left);
        e->last[f] += (uint64_t)cur_zigzag(body);
        ret->v[f] = e->last[f];
    }
    ret->stale = mask & 1 ? get_u32(body) : 0;
    return body->bad ? -EBADMSG : 0;
}

static int compare_rows(const void *a, const void *b)
{
    const struct record_row *x = a, *y = b;
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

/* Sorts rows by entity. Insertion sort is fast here, because the rows are nearly always in order
 * already. */
static void sort_rows(struct record_row *rows, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        if (compare_rows(&rows[i - 1], &rows[i]) <= 0)
            continue;
        qsort(rows, count, sizeof *rows, compare_rows);
        return;
    }
}

static int decode_tick(struct record_decoder *d, struct cur *body, struct record *ret)
{
    uint64_t count = cur_varint(body);
    if (body->bad || count > d->count || count > cur_left(body))
        return -EBADMSG;
    if (count > d->rows_cap) {
        struct record_row *rows = realloc(d->rows, d->cap * sizeof *rows);
        if (!rows)
            return -ENOMEM;
        d->rows = rows;
        d->rows_cap = d->cap;
    }
    for (size_t i = 0; i < count; i++) {
        int result = decode_row(d, body, &d->rows[i]);
        if (result < 0)
            return result;
    }
    sort_rows(d->rows, count);
    ret->rows = d->rows;
    ret->count = count;
    return 0;
}

int record_decode(struct record_decoder *d, struct cur *c, struct record *ret)
{
    while (cur_left(c) > 0) {
        size_t len;
        struct record r = {.type = get_u32(c)};
        d->t_ns += cur_varint(c);
        const char *body = cur_blob(c, &len);
        if (c->bad)
            return -EBADMSG;
        r.t_ns = d->t_ns;
        r.body = cur_of(body, len);
        int result = r.type == RECORD_USE    ? decode_use(d, &r.body)
                     : r.type == RECORD_TICK ? decode_tick(d, &r.body, &r)
                                             : 0;
        if (result < 0)
            return result;
        if (r.type == RECORD_USE)
            continue;
        *ret = r;
        return 1;
    }
    return 0;
}
