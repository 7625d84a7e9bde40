/* Encodes a heap table as blocks. Another process writes the table, so each value is read only
 * once, and checked when the file is read. */
#include "profile/store_pack.h"

#include <math.h>
#include <stdlib.h>

#include "base/buf.h"
#include "trace/block.h"

_Static_assert(HEAP_KINDS <= 1 << 3, "a kind fits in three bits");

/* The job needs the machine's memory, so low memory use matters more here than good compression. */
static const struct pack_effort effort = {.level = 1, .window_log = 17, .table_log = 14};

static void add_block(struct buf *out, struct block_head head, const struct buf *plain)
{
    struct buf packed = {0};
    if (plain->failed || plain->len > BLOCK_PAYLOAD_MAX ||
        pack_add(&packed, plain->data, plain->len, &effort) < 0)
        out->failed = true;
    else {
        head.raw_len = (uint32_t)plain->len;
        block_add(out, &head, packed.data, packed.len);
    }
    buf_fini(&packed);
}

void store_pack_file_head(struct buf *out)
{
    block_add_file_head(out, STORE_MAGIC, STORE_MAJOR, STORE_MINOR);
}

void store_pack_head(struct buf *out, const struct live_table *table)
{
    struct buf plain = {0};
    buf_add_zigzag(&plain, table->pid);
    buf_add_varint(&plain, table->start_ns);
    buf_add_varint(&plain, table->base_interval);
    add_block(out, (struct block_head){.type = STORE_HEAD}, &plain);
    buf_fini(&plain);
}

/* ---- additions ---- */

static void pack_text(struct buf *b, const struct heap_text *text)
{
    buf_add_varint(b, HEAP_ONCE(text->at));
    buf_add_varint(b, HEAP_ONCE(text->len));
}

static void add_range(struct buf *b, uint32_t from, uint32_t to)
{
    buf_add_varint(b, from);
    buf_add_varint(b, to - from);
}

static void add_module(struct buf *b, const struct heap_module *m)
{
    uint8_t len = HEAP_ONCE(m->build_id_len);
    pack_text(b, &m->path);
    buf_add_varint(b, HEAP_ONCE(m->base));
    buf_add_blob(b, m->build_id, len <= HEAP_BUILD_ID_MAX ? len : 0);
}

static void pack_code(struct buf *b, const struct heap_code *c)
{
    pack_text(b, &c->file);
    pack_text(b, &c->name);
    pack_text(b, &c->lines);
    buf_add_varint(b, HEAP_ONCE(c->first_line));
}

/* Returns NOW, or FROM if the count has decreased, as it may in a corrupt table. */
static uint32_t grown(uint32_t from, uint32_t now)
{
    return now > from ? now : from;
}

static bool find_new(const struct live_table *table, const struct live_table_counts *from,
                     struct live_table_counts *ret)
{
    live_table_counts(table, ret);
    ret->text_bytes = grown(from->text_bytes, ret->text_bytes);
    ret->modules = grown(from->modules, ret->modules);
    ret->codes = grown(from->codes, ret->codes);
    ret->nodes = grown(from->nodes, ret->nodes);
    ret->sites = grown(from->sites, ret->sites);
    return ret->text_bytes > from->text_bytes || ret->modules > from->modules ||
           ret->codes > from->codes || ret->nodes > from->nodes || ret->sites > from->sites;
}

void store_pack_news(struct buf *out, const struct live_table *table,
                     struct live_table_counts *done)
{
    const struct heap_table *t = table->map;
    struct live_table_counts now, from = *done;
    struct buf b = {0};
    if (!find_new(table, &from, &now))
        return;
    add_range(&b, from.text_bytes, now.text_bytes);
    buf_add(&b, t->text + from.text_bytes, now.text_bytes - from.text_bytes);
    add_range(&b, from.modules, now.modules);
    for (uint32_t i = from.modules; i < now.modules; i++)
        add_module(&b, &t->modules[i]);
    add_range(&b, from.codes, now.codes);
    for (uint32_t i = from.codes; i < now.codes; i++)
        pack_code(&b, &t->codes[i]);
    add_range(&b, from.nodes, now.nodes);
    for (uint32_t i = from.nodes; i < now.nodes; i++) {
        buf_add_varint(&b, HEAP_ONCE(t->nodes[i].frame));
        buf_add_varint(&b, HEAP_ONCE(t->nodes[i].parent));
    }
    add_range(&b, from.sites, now.sites);
    for (uint32_t i = from.sites; i < now.sites; i++)
        buf_add_varint(&b, HEAP_ONCE(t->sites[i].node));
    add_block(out, (struct block_head){.type = STORE_NEWS}, &b);
    buf_fini(&b);
    *done = now;
}

/* ---- readings ---- */

static void add_moment(struct buf *b, const struct store_moment *at)
{
    buf_add_varint(b, at->flags);
    buf_add_varint(b, at->t_ns);
    buf_add_zigzag(b, at->step);
}

static void pack_cost(struct buf *b, const struct live_table *table)
{
    struct profile_cost cost;
    live_table_cost(table, &cost);
    buf_add_varint(b, STORE_COST_NUMBERS);
#define X(field) buf_add_varint(b, cost.field);
    STORE_COST(X)
#undef X
    buf_add_varint(b, HEAP_DROP_KINDS);
    for (unsigned i = 0; i < HEAP_DROP_KINDS; i++)
        buf_add_varint(b, cost.drops[i]);
}

static uint64_t round_u64(double v)
{
    return v < 0x1p63 ? (uint64_t)(v + 0.5) : (uint64_t)1 << 63;
}

/* Sums the samples of SITE. *AT is the position of the first of these samples, and is advanced past
 * the last. All samples of a call site belong to one device. */
static void sum_site(const struct live_samples *live, uint32_t site, size_t *at,
                     struct store_site *ret, struct store_totals *totals)
{
    bool is_gpu = *at < live->count && live->samples[*at].kind == HEAP_KIND_GPU;
    double bytes = 0, objects = 0, variance = 0;
    for (; *at < live->count && live->samples[*at].site == site; ++*at) {
        const struct profile_sample *s = &live->samples[*at];
        double p = profile_probability(s->size, s->interval);
        double weight = (double)s->size / p;
        bytes += weight;
        objects += 1 / p;
        variance += weight * weight * (1 - p);
    }
    ret->v[STORE_LIVE_BYTES] = round_u64(bytes);
    ret->v[STORE_LIVE_OBJECTS_X16] = round_u64(objects * 16);
    ret->v[STORE_LIVE_SD] = round_u64(sqrt(variance));
    *(is_gpu ? &totals->gpu : &totals->host) += bytes;
}

static void read_counters(const struct live_table *table, uint32_t site, struct store_site *ret)
{
    struct live_table_site counters;
    live_table_site(table, site, &counters);
    ret->v[STORE_ALLOCATED_BYTES] = counters.allocated_bytes;
    ret->v[STORE_ALLOCATED_OBJECTS_X16] = counters.allocated_objects_x16;
    ret->v[STORE_FREED_BYTES] = counters.freed_bytes;
}

/* Adds the changes of a call site. GAP is the number of this call site minus the number of the
 * previous call site that changed. Returns true if this call site has changed. */
static bool add_change(struct buf *b, uint32_t gap, const struct store_site *now,
                       const struct store_site *prev)
{
    uint8_t mask = 0;
    for (unsigned f = 0; f < STORE_FIELDS; f++)
        if (now->v[f] != prev->v[f])
            mask |= (uint8_t)(1U << f);
    if (mask == 0)
        return false;
    buf_add_varint(b, gap);
    buf_add_byte(b, mask);
    for (unsigned f = 0; f < STORE_FIELDS; f++)
        if (mask >> f & 1)
            buf_add_zigzag(b, (int64_t)(now->v[f] - prev->v[f]));
    return true;
}

struct store_totals store_pack_reading(struct buf *out, const struct live_table *table,
                                       const struct live_samples *live,
                                       const struct store_moment *at, uint64_t seq,
                                       struct store_last *last)
{
    struct live_table_counts counts;
    struct buf b = {0};
    size_t sample = 0;
    struct store_totals totals = {0};
    uint32_t gap = 1, holding = 0;
    live_table_counts(table, &counts);
    add_moment(&b, at);
    pack_cost(&b, table);
    for (uint32_t s = 0; s < counts.sites || sample < live->count; s++, gap++) {
        struct store_site now;
        sum_site(live, s, &sample, &now, &totals);
        read_counters(table, s, &now);
        holding += now.v[STORE_LIVE_BYTES] > 0;
        if (add_change(&b, gap, &now, &last->sites[s]))
            gap = 0;
        last->sites[s] = now;
        last->count = s < last->count ? last->count : s + 1;
    }
    buf_add_varint(&b, 0);
    add_block(out, (struct block_head){.type = STORE_READING, .seq = seq, .part = holding}, &b);
    buf_fini(&b);
    return totals;
}

/* ---- GPUs ---- */

static void pack_oom(struct buf *b, const struct profile_oom *o)
{
    buf_add_varint(b, o->number);
    buf_add_varint(b, o->gpu);
    buf_add_varint(b, o->t_ns);
    buf_add_varint(b, o->site);
    buf_add_varint(b, o->request_bytes);
    buf_add_varint(b, o->allocated_bytes);
    buf_add_varint(b, o->reserved_bytes);
    buf_add_varint(b, o->n_top);
    for (size_t i = 0; i < o->n_top; i++) {
        buf_add_varint(b, o->top[i].site);
        buf_add_varint(b, o->top[i].bytes);
    }
}

void store_pack_gpus(struct buf *out, const struct live_table *table)
{
    struct live_table_gpus gpus;
    struct buf b = {0};
    live_table_gpus(table, &gpus);
    if (gpus.used == 0 && gpus.oom_count == 0)
        return;
    buf_add_varint(&b, gpus.used);
    for (unsigned i = 0; i < HEAP_GPUS; i++)
        if (gpus.at[i].reports > 0) {
            buf_add_varint(&b, i);
            buf_add_varint(&b, gpus.at[i].reports);
            buf_add_varint(&b, gpus.at[i].allocated_bytes);
            buf_add_varint(&b, gpus.at[i].reserved_bytes);
            buf_add_varint(&b, gpus.at[i].allocated_peak_bytes);
        }
    buf_add_varint(&b, gpus.oom_count);
    buf_add_varint(&b, gpus.n_ooms);
    for (size_t i = 0; i < gpus.n_ooms; i++)
        pack_oom(&b, &gpus.ooms[i]);
    add_block(out, (struct block_head){.type = STORE_GPUS}, &b);
    buf_fini(&b);
}

/* ---- snapshots ---- */

static int compare_age(const void *a, const void *b)
{
    const struct profile_sample *x = a, *y = b;
    return (x->born_ns < y->born_ns) - (x->born_ns > y->born_ns);
}

static void order_by_age(struct live_samples *live)
{
    for (size_t from = 0, to; from < live->count; from = to) {
        for (to = from + 1; to < live->count; to++)
            if (live->samples[to].site != live->samples[from].site)
                break;
        qsort(live->samples + from, to - from, sizeof *live->samples, compare_age);
    }
}

void store_pack_snapshot(struct buf *out, struct live_samples *live, const struct store_moment *at)
{
    struct buf b = {0};
    struct store_moment moment = *at;
    uint64_t age = 0, interval = 0;
    uint32_t site = 0;
    order_by_age(live);
    for (size_t i = 0; i < live->count; i++)
        moment.flags |= live->samples[i].kind > 3 ? STORE_WIDE_KIND : 0U;
    add_moment(&b, &moment);
    buf_add_varint(&b, live->count);
    for (size_t i = 0; i < live->count; i++) {
        const struct profile_sample *s = &live->samples[i];
        /* Only in a corrupt table can a block be younger than the reading; the age of the block is
         * then 0. */
        uint64_t age_ms = at->t_ns > s->born_ns ? (at->t_ns - s->born_ns) / 1000000 : 0;
        buf_add_varint(&b, (uint64_t)(s->site - site) << store_kind_bits(moment.flags) | s->kind);
        buf_add_zigzag(&b, (int64_t)(age_ms - age));
        buf_add_varint(&b, s->size);
        buf_add_zigzag(&b, (int64_t)(s->interval - interval));
        site = s->site;
        age = age_ms;
        interval = s->interval;
    }
    add_block(out, (struct block_head){.type = STORE_SNAPSHOT}, &b);
    buf_fini(&b);
}
