/* The live samples: filter, index and entries. live.h describes the order of the steps. */
#include "heap/live.h"

#include "heap/sampler.h"
#include "heap/stacks.h"

enum {
    PAGE = 4096,
    ENTRY_MASK = 0xffff, /* bits of a cell that hold the entry's number + 1 */
    /* kind_turn holds the kind in the bits below TURN_SHIFT. The higher bits count how often the
     * entry was used. */
    TURN_SHIFT = 4,
    KIND_MASK = 15,
    NONE = HEAP_LIVE,
    /* number of live samples at which live_thin starts to remove samples */
    NEARLY_FULL = HEAP_LIVE / 4 * 3,
};
_Static_assert((int)HEAP_LIVE < (int)ENTRY_MASK, "an entry's number fits in a cell");
_Static_assert((int)HEAP_KINDS <= (int)KIND_MASK, "a kind fits below the turn");
_Static_assert(LIVE_FILTER_BITS / LIVE_BUCKETS == 1 << 9, "a fingerprint has the remaining bits");

#define PRIVATE_PAGES __attribute__((aligned(4096)))
PRIVATE_PAGES _Atomic(uint64_t) live_filter[LIVE_FILTER_BITS / 64];
PRIVATE_PAGES static _Atomic(uint32_t) cells[LIVE_BUCKETS][LIVE_CELLS];
/* For each free entry: 1 + the number of the next free entry. */
PRIVATE_PAGES static _Atomic(uint16_t) links[HEAP_LIVE];
/* One bit per entry, which is set if the entry is a mapping. */
PRIVATE_PAGES static _Atomic(uint64_t) maps[HEAP_LIVE / 64];
/* The low 32 bits are 1 + the number of the first free entry. The high 32 bits are a counter that
 * changes with each update, which prevents the ABA problem. */
static _Atomic(uint64_t) free_head;
static _Atomic(uint32_t) living;
static _Atomic(uint32_t) is_thinning;

static bool is_mapping(uint32_t kind)
{
    return kind == HEAP_KIND_MAP || kind == HEAP_KIND_SHARED || kind == HEAP_KIND_POOL;
}

/* ---- entries ---- */

static uint32_t take_entry(struct heap_table *t)
{
    uint64_t head = atomic_load(&free_head);
    while ((uint32_t)head != 0) {
        uint32_t entry = (uint32_t)head - 1;
        uint64_t next = ((head >> 32) + 1) << 32 | atomic_load(&links[entry]);
        if (atomic_compare_exchange_weak(&free_head, &head, next))
            return entry;
    }
    uint32_t entry;
    return heap_take(&t->header.live_high, 1, HEAP_LIVE, &entry) ? entry : NONE;
}

static void release_entry(uint32_t entry)
{
    uint64_t head = atomic_load(&free_head), next;
    do {
        atomic_store(&links[entry], (uint16_t)head);
        next = ((head >> 32) + 1) << 32 | (entry + 1);
    } while (!atomic_compare_exchange_weak(&free_head, &head, next));
}

/* Fills an entry. All stores are releases, so that a reader in another process sees ptr 0 before
 * any of the new values. */
static void fill_entry(struct heap_live *e, uint64_t p, const struct live_sample *sample)
{
    uint32_t turn = HEAP_LOAD(e->kind_turn) >> TURN_SHIFT;
    uint64_t units = sample->interval / SAMPLER_UNIT;
    if (units == 0)
        units = 1;
    HEAP_STORE_RELEASE(e->kind_turn, (turn + 1) << TURN_SHIFT | (uint32_t)sample->kind);
    HEAP_STORE_RELEASE(e->size, sample->size);
    HEAP_STORE_RELEASE(e->site, sample->site);
    HEAP_STORE_RELEASE(e->born_ms, sample->born_ms);
    HEAP_STORE_RELEASE(e->interval, units < UINT32_MAX ? (uint32_t)units : UINT32_MAX);
    HEAP_STORE_RELEASE(e->ptr, p);
}

static void read_entry(const struct heap_live *e, struct live_sample *ret)
{
    ret->size = HEAP_LOAD_ACQUIRE(e->size);
    ret->interval = (uint64_t)HEAP_LOAD_ACQUIRE(e->interval) * SAMPLER_UNIT;
    ret->site = HEAP_LOAD_ACQUIRE(e->site);
    ret->born_ms = HEAP_LOAD_ACQUIRE(e->born_ms);
    ret->kind = HEAP_LOAD_ACQUIRE(e->kind_turn) & KIND_MASK;
}

static void clear_entry(struct heap_table *t, uint32_t entry)
{
    struct heap_live *e = &t->live[entry];
    if (is_mapping(HEAP_LOAD(e->kind_turn) & KIND_MASK))
        atomic_fetch_and(&maps[entry / 64], ~(UINT64_C(1) << entry % 64));
    HEAP_STORE_RELEASE(e->ptr, 0);
    release_entry(entry);
}

/* ---- cells of the index and bits of the filter ---- */

static _Atomic(uint32_t) *bucket_of(uint32_t bit)
{
    return cells[bit % LIVE_BUCKETS];
}

/* Returns the upper half of a cell: the bits of the filter position that the bucket does not
 * determine, and 7 more bits of the pointer's hash. */
static uint32_t fingerprint(uintptr_t p)
{
    uint32_t mixed = (uint32_t)((uint64_t)p * UINT64_C(0xd6e8feb86659fd93) >> 57);
    return live_bit(p) / LIVE_BUCKETS << 23 | mixed << 16;
}

/* Returns true if the sample in CELL has the filter bit BIT. CELL must be in the bucket that BIT
 * selects. */
static bool has_bit(uint32_t cell, uint32_t bit)
{
    return cell != 0 && cell >> 23 == bit / LIVE_BUCKETS;
}

static bool bucket_has_bit(uint32_t bit)
{
    _Atomic(uint32_t) *bucket = bucket_of(bit);
    for (int i = 0; i < LIVE_CELLS; i++)
        if (has_bit(atomic_load(&bucket[i]), bit))
            return true;
    return false;
}

static void set_bit(uint32_t bit)
{
    atomic_fetch_or(&live_filter[bit / 64], UINT64_C(1) << bit % 64);
}

/* Clears a filter bit unless another sample needs it. Another thread may add a sample between the
 * check and the clearing. If that thread sets the bit after the clearing, the bit stays set. If it
 * sets the bit before the clearing, the second check finds its cell and sets the bit again. */
static void clear_bit(uint32_t bit)
{
    if (bucket_has_bit(bit))
        return;
    atomic_fetch_and(&live_filter[bit / 64], ~(UINT64_C(1) << bit % 64));
    if (bucket_has_bit(bit))
        set_bit(bit);
}

static bool put_filter_cell(uintptr_t p, uint32_t entry)
{
    uint32_t bit = live_bit(p), cell = fingerprint(p) | (entry + 1);
    _Atomic(uint32_t) *bucket = bucket_of(bit);
    for (int i = 0; i < LIVE_CELLS; i++) {
        uint32_t empty = 0;
        if (HEAP_LOAD(bucket[i]) == 0 && atomic_compare_exchange_strong(&bucket[i], &empty, cell)) {
            set_bit(bit);
            /* Another thread may have removed the sample and cleared its bit before this thread set
             * it. */
            if (atomic_load(&bucket[i]) != cell)
                clear_bit(bit);
            return true;
        }
    }
    return false;
}

/* Returns true if the bucket may contain a pointer with fingerprint PRINT. With many live samples,
 * the answer is wrongly true for about one pointer in a hundred. The loop has no branch per cell,
 * because the processor would often mispredict it. */
static bool may_be_in(_Atomic(uint32_t) *bucket, uint32_t print)
{
    uint32_t found = 0;
    for (int i = 0; i < LIVE_CELLS; i++) {
        uint32_t cell = HEAP_LOAD(bucket[i]);
        found |= (cell ^ print) <= ENTRY_MASK;
    }
    return found != 0;
}

/* Finds the cell of P. Sets *RET to the value of the cell. Returns NULL if P is not sampled. */
static _Atomic(uint32_t) *find_cell(const struct heap_table *t, uintptr_t p, uint32_t *ret)
{
    uint32_t print = fingerprint(p);
    _Atomic(uint32_t) *bucket = bucket_of(live_bit(p));
    if (!may_be_in(bucket, print))
        return NULL;
    for (int i = 0; i < LIVE_CELLS; i++) {
        uint32_t cell = HEAP_LOAD_ACQUIRE(bucket[i]);
        if (cell == 0 || (cell & ~(uint32_t)ENTRY_MASK) != print)
            continue;
        uint32_t entry = (cell & ENTRY_MASK) - 1;
        if (HEAP_LOAD_ACQUIRE(t->live[entry].ptr) == p) {
            *ret = cell;
            return &bucket[i];
        }
    }
    return NULL;
}

/* Removes P from the index. From then on, only the caller uses P's entry. Returns NONE if P is not
 * in the index. */
static uint32_t claim(struct heap_table *t, uintptr_t p)
{
    for (;;) {
        uint32_t cell;
        _Atomic(uint32_t) *at = find_cell(t, p, &cell);
        if (!at)
            return NONE;
        uint32_t entry = (cell & ENTRY_MASK) - 1;
        if (!atomic_compare_exchange_strong(at, &cell, 0))
            continue;
        uint64_t there = HEAP_LOAD_ACQUIRE(t->live[entry].ptr);
        if (there == p)
            return entry;
        /* Between the look-up and the exchange, another thread removed P and reused the entry for a
         * pointer with the same fingerprint. */
        if (!put_filter_cell((uintptr_t)there, entry)) {
            clear_entry(t, entry);
            atomic_fetch_sub(&living, 1);
            heap_drop(HEAP_DROP_LIVE);
        }
    }
}

static void remove_sample(struct heap_table *t, uintptr_t p, uint32_t entry)
{
    clear_entry(t, entry);
    clear_bit(live_bit(p));
    atomic_fetch_sub(&living, 1);
}

/* ---- interface ---- */

bool live_add(const void *p, const struct live_sample *sample)
{
    struct heap_table *t = heap_process.table;
    struct live_sample old;
    if (!t)
        return false;
    if (live_maybe(p) && live_end(p, &old))
        heap_drop(HEAP_DROP_STALE);
    uint32_t entry = take_entry(t);
    if (entry == NONE)
        return false;
    fill_entry(&t->live[entry], (uintptr_t)p, sample);
    if (is_mapping(sample->kind))
        atomic_fetch_or(&maps[entry / 64], UINT64_C(1) << entry % 64);
    if (!put_filter_cell((uintptr_t)p, entry)) {
        clear_entry(t, entry);
        return false;
    }
    atomic_fetch_add(&living, 1);
    return true;
}

bool live_end(const void *p, struct live_sample *ret)
{
    struct heap_table *t = heap_process.table;
    uint32_t entry = t ? claim(t, (uintptr_t)p) : NONE;
    if (entry == NONE)
        return false;
    read_entry(&t->live[entry], ret);
    remove_sample(t, (uintptr_t)p, entry);
    return true;
}

bool live_find(const void *p, struct live_sample *ret)
{
    struct heap_table *t = heap_process.table;
    uint32_t cell;
    if (!t || !find_cell(t, (uintptr_t)p, &cell))
        return false;
    const struct heap_live *e = &t->live[(cell & ENTRY_MASK) - 1];
    struct live_sample sample;
    read_entry(e, &sample);
    if (HEAP_LOAD_ACQUIRE(e->ptr) != (uintptr_t)p)
        return false;
    *ret = sample;
    return true;
}

/* Keeps or removes one sample while the table is being thinned. If another thread replaces the
 * sample in this entry at the same time, the decision about the old sample is applied to the new
 * one. */
static void thin_entry(struct heap_table *t, uint32_t entry, uint64_t *random)
{
    struct heap_live *e = &t->live[entry];
    uint32_t kind = HEAP_LOAD(e->kind_turn) & KIND_MASK;
    uint64_t interval = sampler_floor(kind == HEAP_KIND_GPU);
    uint64_t p = HEAP_LOAD_ACQUIRE(e->ptr);
    uint64_t size = HEAP_LOAD_ACQUIRE(e->size);
    uint32_t units = HEAP_LOAD_ACQUIRE(e->interval);
    uint64_t old = (uint64_t)units * SAMPLER_UNIT;
    if (p == 0 || old >= interval)
        return;
    double stays = sampler_probability(size, interval) / sampler_probability(size, old);
    if (sampler_fraction(random) < stays) {
        atomic_compare_exchange_strong(&e->interval, &units, (uint32_t)(interval / SAMPLER_UNIT));
        return;
    }
    uint32_t mine = claim(t, (uintptr_t)p);
    if (mine == NONE)
        return;
    remove_sample(t, (uintptr_t)p, mine);
    heap_drop(HEAP_DROP_THINNED);
}

void live_thin(uint64_t *random)
{
    struct heap_table *t = heap_process.table;
    if (!t || atomic_exchange(&is_thinning, 1) != 0)
        return;
    while (atomic_load(&living) >= NEARLY_FULL && sampler_floor(false) < SAMPLER_INTERVAL_MAX) {
        sampler_set_floor(sampler_floor(false) * 2);
        uint32_t high = atomic_load(&t->header.live_high);
        for (uint32_t i = 0; i < high; i++)
            thin_entry(t, i, random);
    }
    atomic_store(&is_thinning, 0);
}

/* Adds a sample for the LEN bytes at P that remain of the mapping WHOLE. */
static void keep_part(uintptr_t p, uint64_t len, const struct live_sample *whole)
{
    struct live_sample part = *whole;
    if (len == 0)
        return;
    part.size = len;
    part.interval = (uint64_t)((double)whole->interval * (double)len / (double)whole->size);
    if (!live_add((const void *)p, &part))
        heap_drop(HEAP_DROP_LIVE);
}

static void cut_mapping(struct heap_table *t, uintptr_t p, uintptr_t start, uintptr_t end)
{
    struct live_sample whole;
    if (!live_end((const void *)p, &whole))
        return;
    uint64_t before = start > p ? start - p : 0;
    uint64_t after = p + whole.size > end ? p + whole.size - end : 0;
    uint64_t gone = whole.size - before - after;
    stacks_freed(whole.site, gone, sampler_probability(whole.size, whole.interval));
    if (before == 0 && after == 0)
        HEAP_ADD(t->header.ends, 1);
    keep_part(p, before, &whole);
    keep_part(end, after, &whole);
}

void live_cut(uintptr_t start, size_t len)
{
    struct heap_table *t = heap_process.table;
    uintptr_t end = start + ((len + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    uint32_t words = t ? (atomic_load(&t->header.live_high) + 63) / 64 : 0;
    for (uint32_t i = 0; i < words; i++)
        for (uint64_t left = atomic_load(&maps[i]); left != 0; left &= left - 1) {
            const struct heap_live *e = &t->live[i * 64 + (uint32_t)__builtin_ctzll(left)];
            uint64_t p = HEAP_LOAD_ACQUIRE(e->ptr);
            uint64_t size = HEAP_LOAD_ACQUIRE(e->size);
            if (p != 0 && p < end && p + size > start)
                cut_mapping(t, (uintptr_t)p, start, end);
        }
}

void live_reset(void)
{
    heap_zero(live_filter, sizeof live_filter);
    heap_zero(cells, sizeof cells);
    heap_zero(links, sizeof links);
    heap_zero(maps, sizeof maps);
    atomic_store(&free_head, 0);
    atomic_store(&living, 0);
    atomic_store(&is_thinning, 0);
}
