/* Reads a heap table that another, untrusted process writes. */
#include "profile/live_table.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"

enum { INTERVAL_UNIT = 64, KIND_MASK = 15 };
enum { PAGE_BYTES = 4096, OWN_MAPPING_BYTES = 128 << 10 };
enum { LARGE_MAX = 16, PROBES = 256, PROBE_PAGES = 512 };
#define LARGE_BYTES (UINT64_C(64) << 20)
/* Bits of an entry in /proc/PID/pagemap. */
#define PAGE_PRESENT (UINT64_C(1) << 63)
#define PAGE_SWAPPED (UINT64_C(1) << 62)

/* Checks that FD is safe to map. Reading a mapped file may raise SIGBUS, unless the file is a memfd
 * that is sealed against shrinking and does not use huge pages. */
static int check_file(int fd, struct err *err)
{
    struct stat st;
    struct statfs fs;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC || fstat(fd, &st) < 0)
        return err_set(err, -EBADMSG, "the heap profiler's table is not in a memfd");
    if (!(seals & F_SEAL_SHRINK))
        return err_set(err, -EBADMSG, "the heap profiler's table is not sealed against shrinking");
    if (st.st_size < (off_t)sizeof(((struct heap_table *)0)->header_page))
        return err_set(err, -EBADMSG,
                       "the heap profiler's table is %lld bytes long, shorter than its header",
                       (long long)st.st_size);
    return 0;
}

static int check_head(int fd, struct live_table *l, struct err *err)
{
    struct stat st;
    const struct heap_header *h = &l->map->header;
    uint32_t version = HEAP_ONCE(h->version);
    if (memcmp(h->magic, HEAP_TABLE_MAGIC, sizeof h->magic) != 0)
        return err_set(err, -EBADMSG,
                       "the heap profiler's table does not start with its magic number");
    if (version != HEAP_TABLE_VERSION)
        return err_set(err, -ENOTSUP,
                       "the heap profiler's table has version %u, but this ebb reads version %d: "
                       "use libebb-heap.so and ebb from the same build",
                       version, HEAP_TABLE_VERSION);
    if (fstat(fd, &st) < 0 || st.st_size != (off_t)sizeof *l->map ||
        HEAP_ONCE(h->table_bytes) != sizeof *l->map)
        return err_set(err, -EBADMSG,
                       "the heap profiler's table is %lld bytes long, expected %zu bytes",
                       (long long)st.st_size, sizeof *l->map);
    l->start_ns = HEAP_ONCE(h->start_ns);
    l->base_interval = HEAP_ONCE(h->base_interval);
    return 0;
}

int live_table_open(int fd, int32_t pid, struct live_table *ret, struct err *err)
{
    struct live_table l = {.bytes = sizeof(struct heap_table), .pid = pid};
    int r = check_file(fd, err);
    if (r < 0)
        return r;
    /* If the table is smaller than expected, only its header is read. The header exists, and the
     * seal ensures that the file cannot shrink, so this is safe. */
    void *map = mmap(NULL, l.bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_set(err, -errno, "cannot map the heap profiler's table: %s", strerror(errno));
    l.map = map;
    r = check_head(fd, &l, err);
    if (r < 0) {
        live_table_close(&l);
        return r;
    }
    *ret = l;
    return 0;
}

void live_table_close(struct live_table *l)
{
    if (l->map)
        munmap((void *)(uintptr_t)l->map, l->bytes);
    free(l->large);
    *l = (struct live_table){0};
}

void live_table_rest(const struct live_table *l)
{
    madvise((void *)(uintptr_t)l->map, l->bytes, MADV_DONTNEED);
}

static uint32_t at_most(uint32_t n, uint32_t max)
{
    return n < max ? n : max;
}

/* Reads how many entries each section has. The process writes an entry after the entries to which
 * it refers, so the count of the referring section is read first. */
void live_table_counts(const struct live_table *l, struct live_table_counts *ret)
{
    const struct heap_header *h = &l->map->header;
    ret->live = at_most(HEAP_LOAD_ACQUIRE(h->live_high), HEAP_LIVE);
    ret->sites = at_most(HEAP_LOAD_ACQUIRE(h->sites), HEAP_SITES);
    ret->nodes = at_most(HEAP_LOAD_ACQUIRE(h->nodes), HEAP_NODES);
    ret->codes = at_most(HEAP_LOAD_ACQUIRE(h->codes), HEAP_CODES);
    ret->modules = at_most(HEAP_LOAD_ACQUIRE(h->modules), HEAP_MODULES);
    ret->text_bytes = at_most(HEAP_LOAD_ACQUIRE(h->text_bytes), HEAP_TEXT_BYTES);
}

void live_samples_fini(struct live_samples *l)
{
    free(l->samples);
    *l = (struct live_samples){0};
}

static bool is_large(uint32_t kind, uint64_t size)
{
    return kind == HEAP_KIND_POOL ||
           (kind != HEAP_KIND_SHARED && kind != HEAP_KIND_GPU && size > LARGE_BYTES);
}

/* Scales a sample to the resident part of its block, leaving the probability that the sample was
 * drawn unchanged. */
static void scale_to_resident(const struct live_table *l, uint64_t ptr, struct profile_sample *s)
{
    for (size_t i = 0; i < l->n_large; i++) {
        const struct live_table_large *b = &l->large[i];
        if (b->ptr != ptr || b->size != s->size || b->resident >= b->size)
            continue;
        double part = (double)(b->resident ? b->resident : 1) / (double)b->size;
        s->size = b->resident ? b->resident : 1;
        s->interval = (uint64_t)((double)s->interval * part);
        s->interval += s->interval == 0;
        return;
    }
}

/* Reads one entry. Returns false if the entry is empty, being written, or invalid. */
static bool read_entry(const struct live_table *l, const struct heap_live *e, uint32_t sites,
                       struct profile_sample *ret)
{
    uint64_t ptr = HEAP_LOAD_ACQUIRE(e->ptr);
    if (ptr == 0)
        return false;
    uint32_t turn = HEAP_LOAD_ACQUIRE(e->kind_turn);
    uint64_t size = HEAP_LOAD(e->size);
    uint32_t site = HEAP_LOAD(e->site), born_ms = HEAP_LOAD(e->born_ms),
             interval = HEAP_LOAD(e->interval);
    atomic_thread_fence(memory_order_acquire);
    if (HEAP_LOAD(e->ptr) != ptr || HEAP_LOAD(e->kind_turn) != turn)
        return false;
    uint32_t kind = turn & KIND_MASK;
    if (interval == 0 || size == 0 || kind >= HEAP_KINDS)
        return false;
    *ret = (struct profile_sample){
        .site = site < sites ? site : 0,
        .kind = kind,
        .size = size,
        .interval = (uint64_t)interval * INTERVAL_UNIT,
        .born_ns = l->start_ns + (uint64_t)born_ms * 1000000,
    };
    if (is_large(kind, size))
        scale_to_resident(l, ptr, ret);
    return true;
}

/* Returns the resident and swapped bytes of a block. For a large block, both are estimated from
 * PROBES parts of the block. */
static uint64_t resident_bytes(int pagemap_fd, uint64_t ptr, uint64_t size)
{
    uint64_t entries[PROBE_PAGES], first = ptr / PAGE_BYTES, pages = size / PAGE_BYTES;
    uint64_t stride = pages / PROBES > PROBE_PAGES ? pages / PROBES : PROBE_PAGES;
    uint64_t seen = 0, found = 0;
    for (uint64_t at = 0; at < pages; at += stride) {
        uint64_t left = pages - at, want = left < PROBE_PAGES ? left : PROBE_PAGES;
        ssize_t n = pread(pagemap_fd, entries, want * sizeof *entries,
                          (off_t)((first + at) * sizeof *entries));
        if (n <= 0)
            return size;
        for (size_t i = 0; i < (size_t)n / sizeof *entries; i++, seen++)
            found += (entries[i] & (PAGE_PRESENT | PAGE_SWAPPED)) != 0;
    }
    return seen ? (uint64_t)((double)size * (double)found / (double)seen) : size;
}

void live_table_measure(struct live_table *l, int pagemap_fd)
{
    struct live_table_large found[LARGE_MAX];
    size_t count = 0;
    uint32_t live = at_most(HEAP_LOAD_ACQUIRE(l->map->header.live_high), HEAP_LIVE);
    for (uint32_t i = 0; i < live; i++) {
        const struct heap_live *e = &l->map->live[i];
        struct live_table_large one = {.ptr = HEAP_LOAD_ACQUIRE(e->ptr),
                                       .size = HEAP_LOAD(e->size)};
        if (one.ptr == 0 || one.size == 0 ||
            !is_large(HEAP_LOAD(e->kind_turn) & KIND_MASK, one.size))
            continue;
        size_t least = 0;
        for (size_t k = 1; k < count; k++)
            if (found[k].size < found[least].size)
                least = k;
        if (count < LARGE_MAX)
            found[count++] = one;
        else if (found[least].size < one.size)
            found[least] = one;
    }
    if (count > 0 && !l->large)
        l->large = calloc(LARGE_MAX, sizeof *l->large);
    l->n_large = l->large ? count : 0;
    for (size_t i = 0; i < l->n_large; i++) {
        found[i].resident = resident_bytes(pagemap_fd, found[i].ptr, found[i].size);
        l->large[i] = found[i];
    }
}

void live_table_totals(const struct live_table *l, struct live_table_totals *ret)
{
    struct live_table_counts counts;
    struct profile_sample s;
    *ret = (struct live_table_totals){0};
    live_table_counts(l, &counts);
    for (uint32_t i = 0; i < counts.live; i++) {
        if (!read_entry(l, &l->map->live[i], counts.sites, &s))
            continue;
        double *total = s.kind == HEAP_KIND_SHARED ? &ret->shared
                        : s.kind == HEAP_KIND_POOL ? &ret->pool
                        : s.kind == HEAP_KIND_GPU  ? &ret->gpu
                                                   : &ret->heap;
        *total += profile_weight_bytes(s.size, s.interval);
    }
}

uint64_t live_table_allocated_bytes(const struct live_table *l)
{
    return HEAP_LOAD(l->map->header.allocated_bytes);
}

/* Sorts the samples by call site, in place and in linear time. NEXT and END have one zeroed
 * element per call site. */
static void order(struct profile_sample *samples, size_t count, uint32_t *next, uint32_t *end,
                  uint32_t sites)
{
    for (size_t i = 0; i < count; i++)
        end[samples[i].site]++;
    for (uint32_t s = 1; s < sites; s++) {
        next[s] = end[s - 1];
        end[s] += end[s - 1];
    }
    for (uint32_t s = 0; s < sites; s++)
        while (next[s] < end[s]) { /* each iteration moves one sample to its final place */
            struct profile_sample *here = &samples[next[s]];
            struct profile_sample *there = &samples[next[here->site]++];
            struct profile_sample swapped = *there;
            *there = *here;
            *here = swapped;
        }
}

static int live_reserve(struct live_samples *l, size_t n)
{
    if (n <= l->cap)
        return 0;
    struct profile_sample *samples = realloc(l->samples, n * sizeof *samples);
    if (!samples)
        return -ENOMEM;
    l->samples = samples;
    l->cap = n;
    return 0;
}

int live_table_read(const struct live_table *l, struct live_samples *ret)
{
    struct live_table_counts counts;
    live_table_counts(l, &counts);
    uint32_t sites = counts.sites > 0 ? counts.sites : 1;
    AUTO_FREE uint32_t *places = calloc((size_t)sites * 2, sizeof *places);
    if (!places || live_reserve(ret, counts.live + 1) < 0)
        return -ENOMEM;
    ret->count = 0;
    for (uint32_t i = 0; i < counts.live; i++)
        ret->count += read_entry(l, &l->map->live[i], sites, &ret->samples[ret->count]);
    order(ret->samples, ret->count, places, places + sites, sites);
    return 0;
}

/* Returns true if glibc gave the block a mapping of its own, as it does for large blocks. The block
 * then starts after a header of 16 bytes, or at offset 64 of the mapping if torch aligned it. A
 * block inside the heap has such an address only by chance. */
static bool has_own_mapping(const struct profile_sample *s, uint64_t ptr)
{
    uint64_t offset = ptr % PAGE_BYTES;
    return s->size >= OWN_MAPPING_BYTES && (offset == 16 || offset == 64);
}

static uint64_t inside_bytes(const struct live_table *l, const struct live_table_counts *counts)
{
    double sum = 0;
    for (uint32_t i = 0; i < counts->live; i++) {
        struct profile_sample s;
        uint64_t ptr = HEAP_LOAD_ACQUIRE(l->map->live[i].ptr);
        if (read_entry(l, &l->map->live[i], counts->sites, &s) &&
            (s.kind == HEAP_KIND_MALLOC || s.kind == HEAP_KIND_NEW) && !has_own_mapping(&s, ptr))
            sum += profile_weight_bytes(s.size, s.interval);
    }
    /* a corrupt table may yield any sum; an implausible sum is replaced by 0 */
    return sum < 0x1p62 ? (uint64_t)sum : 0;
}

void live_table_cost(const struct live_table *l, struct profile_cost *ret)
{
    const struct heap_header *h = &l->map->header;
    struct live_table_counts counts;
    uint32_t state = HEAP_LOAD(h->python_state);
    live_table_counts(l, &counts);
    *ret = (struct profile_cost){
        .samples = HEAP_LOAD(h->samples),
        .ends = HEAP_LOAD(h->ends),
        .hook_ns = HEAP_LOAD(h->hook_ns),
        .interval = HEAP_LOAD(h->interval),
        .base_interval = l->base_interval,
        .python_version = HEAP_LOAD(h->python_version),
        .python_state = state < HEAP_PYTHON_STATE_COUNT ? state : HEAP_PYTHON_CHECK,
        .python_small = HEAP_LOAD(h->python_small) != 0,
        .modules = counts.modules,
        .codes = counts.codes,
        .nodes = counts.nodes,
        .sites = counts.sites,
        .live = counts.live,
        .text_bytes = counts.text_bytes,
        .arena_bytes = HEAP_LOAD(h->python_arena_bytes),
        .inside_bytes = inside_bytes(l, &counts),
        .gpu_interval = HEAP_LOAD(h->gpu_interval),
    };
    for (unsigned i = 0; i < HEAP_DROP_KINDS; i++)
        ret->drops[i] = HEAP_LOAD(h->drops[i]);
}

/* Reads a failed request. Returns false if the entry is empty or being written. */
static bool read_oom(const struct live_table *l, const struct heap_oom *o, struct profile_oom *ret)
{
    uint32_t number = HEAP_LOAD_ACQUIRE(o->number), gpu = HEAP_LOAD(o->gpu);
    *ret = (struct profile_oom){
        .number = number,
        .gpu = gpu,
        .site = HEAP_LOAD(o->site),
        .t_ns = l->start_ns + (uint64_t)HEAP_LOAD(o->born_ms) * 1000000,
        .request_bytes = HEAP_LOAD(o->request_bytes),
        .allocated_bytes = HEAP_LOAD(o->allocated_bytes),
        .reserved_bytes = HEAP_LOAD(o->reserved_bytes),
    };
    for (size_t i = 0; i < HEAP_OOM_SITES && HEAP_LOAD(o->top[i].bytes) > 0; i++)
        ret->top[ret->n_top++] = (struct profile_oom_site){.site = HEAP_LOAD(o->top[i].site),
                                                           .bytes = HEAP_LOAD(o->top[i].bytes)};
    atomic_thread_fence(memory_order_acquire);
    return number != 0 && HEAP_LOAD(o->number) == number && gpu < HEAP_GPUS;
}

static void add_oom(struct live_table_gpus *g, const struct profile_oom *oom)
{
    size_t at = g->n_ooms++;
    for (; at > 0 && g->ooms[at - 1].number > oom->number; at--)
        g->ooms[at] = g->ooms[at - 1];
    g->ooms[at] = *oom;
}

void live_table_gpus(const struct live_table *l, struct live_table_gpus *ret)
{
    const struct heap_header *h = &l->map->header;
    struct profile_oom oom;
    *ret = (struct live_table_gpus){.oom_count = HEAP_LOAD(h->oom_count)};
    for (unsigned i = 0; i < HEAP_GPUS; i++) {
        ret->at[i] = (struct profile_gpu){
            .reports = HEAP_LOAD(h->gpus[i].reports),
            .allocated_bytes = HEAP_LOAD(h->gpus[i].allocated_bytes),
            .reserved_bytes = HEAP_LOAD(h->gpus[i].reserved_bytes),
            .allocated_peak_bytes = HEAP_LOAD(h->gpus[i].allocated_peak_bytes),
            .low_bytes = HEAP_LOAD(h->gpus[i].low_bytes),
        };
        uint64_t before = HEAP_LOAD(h->gpus[i].low_before_bytes);
        if (before < ret->at[i].low_bytes)
            ret->at[i].low_bytes = before;
        ret->used += ret->at[i].reports > 0;
    }
    for (unsigned i = 0; i < HEAP_OOMS; i++)
        if (read_oom(l, &h->ooms[i], &oom))
            add_oom(ret, &oom);
}

bool live_table_is_ended(const struct live_table *l)
{
    return HEAP_LOAD(l->map->header.is_ended) != 0;
}

void live_table_site(const struct live_table *l, uint32_t site, struct live_table_site *ret)
{
    *ret = (struct live_table_site){0};
    if (site >= at_most(HEAP_LOAD_ACQUIRE(l->map->header.sites), HEAP_SITES))
        return;
    const struct heap_site *s = &l->map->sites[site];
    ret->allocated_bytes = HEAP_LOAD(s->allocated_bytes);
    ret->allocated_objects_x16 = HEAP_LOAD(s->allocated_objects_x16);
    ret->freed_bytes = HEAP_LOAD(s->freed_bytes);
}
