/* A table that another process writes, read without believing it. */
#include "profile/look.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/cleanup.h"
#include "base/err.h"

/* The compiler may read a plain field twice; the other process may write in between. */
#define ONCE(field) (*(const volatile __typeof__(field) *)&(field))
#define LOAD(field) atomic_load_explicit(&(field), memory_order_relaxed)
#define LOAD_ACQUIRE(field) atomic_load_explicit(&(field), memory_order_acquire)

enum { INTERVAL_UNIT = 64, KIND_MASK = 15 };
enum { PAGE_BYTES = 4096, OWN_MAPPING_BYTES = 128 << 10 };

/* Only a memfd on plain pages that cannot shrink is safe to map: no read of it raises SIGBUS. */
static int check_file(int fd, struct err *err)
{
    struct stat st;
    struct statfs fs;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstatfs(fd, &fs) < 0 || fs.f_type != TMPFS_MAGIC || fstat(fd, &st) < 0)
        return err_set(err, -EBADMSG, "the heap's table is not in a memfd");
    if (!(seals & F_SEAL_SHRINK))
        return err_set(err, -EBADMSG, "the heap's table is not sealed against shrinking");
    if (st.st_size < (off_t)sizeof(((struct heap_table *)0)->header_page))
        return err_set(err, -EBADMSG, "the heap's table is %lld bytes long, less than its head",
                       (long long)st.st_size);
    return 0;
}

static int check_head(int fd, struct look *l, struct err *err)
{
    struct stat st;
    const struct heap_header *h = &l->table->header;
    uint32_t version = ONCE(h->version);
    if (memcmp(h->magic, HEAP_TABLE_MAGIC, sizeof h->magic) != 0)
        return err_set(err, -EBADMSG, "the heap's table does not begin with its magic");
    if (version != HEAP_TABLE_VERSION)
        return err_set(err, -ENOTSUP,
                       "the heap's table is of version %u and this ebb reads version %d: "
                       "libebb-heap.so and ebb must come from the same build",
                       version, HEAP_TABLE_VERSION);
    if (fstat(fd, &st) < 0 || st.st_size != (off_t)sizeof *l->table ||
        ONCE(h->table_bytes) != sizeof *l->table)
        return err_set(err, -EBADMSG, "the heap's table is %lld bytes long, and %zu were expected",
                       (long long)st.st_size, sizeof *l->table);
    l->start_ns = ONCE(h->start_ns);
    l->base_interval = ONCE(h->base_interval);
    return 0;
}

int look_open(int fd, int32_t pid, struct look *ret, struct err *err)
{
    struct look l = {.bytes = sizeof(struct heap_table), .pid = pid};
    int r = check_file(fd, err);
    if (r < 0)
        return r;
    /* Of a smaller table the head alone is touched: it is there, and seals are for ever. */
    void *map = mmap(NULL, l.bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return err_set(err, -errno, "cannot map the heap's table: %s", strerror(errno));
    l.table = map;
    r = check_head(fd, &l, err);
    if (r < 0) {
        look_close(&l);
        return r;
    }
    *ret = l;
    return 0;
}

void look_close(struct look *l)
{
    if (l->table)
        munmap((void *)(uintptr_t)l->table, l->bytes);
    *l = (struct look){0};
}

void look_rest(const struct look *l)
{
    madvise((void *)(uintptr_t)l->table, l->bytes, MADV_DONTNEED);
}

static uint32_t at_most(uint32_t n, uint32_t max)
{
    return n < max ? n : max;
}

/* Each refers only to what was whole before it, so they are read from the last to the first. */
void look_counts(const struct look *l, struct look_counts *ret)
{
    const struct heap_header *h = &l->table->header;
    ret->live = at_most(LOAD_ACQUIRE(h->live_high), HEAP_LIVE);
    ret->sites = at_most(LOAD_ACQUIRE(h->sites), HEAP_SITES);
    ret->nodes = at_most(LOAD_ACQUIRE(h->nodes), HEAP_NODES);
    ret->codes = at_most(LOAD_ACQUIRE(h->codes), HEAP_CODES);
    ret->modules = at_most(LOAD_ACQUIRE(h->modules), HEAP_MODULES);
    ret->text_bytes = at_most(LOAD_ACQUIRE(h->text_bytes), HEAP_TEXT_BYTES);
}

void look_live_fini(struct look_live *l)
{
    free(l->samples);
    *l = (struct look_live){0};
}

/* False: empty, being written, or nonsense. */
static bool read_entry(const struct look *l, const struct heap_live *e, uint32_t sites,
                       struct profile_sample *ret)
{
    uint64_t ptr = LOAD_ACQUIRE(e->ptr);
    if (ptr == 0)
        return false;
    uint32_t turn = LOAD_ACQUIRE(e->kind_turn);
    uint64_t size = LOAD(e->size);
    uint32_t site = LOAD(e->site), born_ms = LOAD(e->born_ms), interval = LOAD(e->interval);
    atomic_thread_fence(memory_order_acquire);
    if (LOAD(e->ptr) != ptr || LOAD(e->kind_turn) != turn)
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
    return true;
}

/* By site, in place and without comparing. NEXT and END have room for each site and are zeroed. */
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
        while (next[s] < end[s]) { /* each turn brings one to where it stays */
            struct profile_sample *here = &samples[next[s]];
            struct profile_sample *there = &samples[next[here->site]++];
            struct profile_sample swapped = *there;
            *there = *here;
            *here = swapped;
        }
}

static int live_reserve(struct look_live *l, size_t n)
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

int look_live_read(const struct look *l, struct look_live *ret)
{
    struct look_counts counts;
    look_counts(l, &counts);
    uint32_t sites = counts.sites > 0 ? counts.sites : 1;
    AUTO_FREE uint32_t *places = calloc((size_t)sites * 2, sizeof *places);
    if (!places || live_reserve(ret, counts.live + 1) < 0)
        return -ENOMEM;
    ret->count = 0;
    for (uint32_t i = 0; i < counts.live; i++)
        ret->count += read_entry(l, &l->table->live[i], sites, &ret->samples[ret->count]);
    order(ret->samples, ret->count, places, places + sites, sites);
    return 0;
}

/* glibc gives large pieces mappings of their own, and what it hands out of one begins behind a head
 * of 16 bytes, or at a multiple of 64, as torch wants it. In a heap a piece lies so by chance. */
static bool has_own_mapping(const struct profile_sample *s, uint64_t ptr)
{
    uint64_t offset = ptr % PAGE_BYTES;
    return s->size >= OWN_MAPPING_BYTES && (offset == 16 || offset == 64);
}

static uint64_t inside_bytes(const struct look *l, const struct look_counts *counts)
{
    double sum = 0;
    for (uint32_t i = 0; i < counts->live; i++) {
        struct profile_sample s;
        uint64_t ptr = LOAD_ACQUIRE(l->table->live[i].ptr);
        if (read_entry(l, &l->table->live[i], counts->sites, &s) &&
            (s.kind == HEAP_KIND_MALLOC || s.kind == HEAP_KIND_NEW) && !has_own_mapping(&s, ptr))
            sum += profile_weight_bytes(s.size, s.interval);
    }
    return sum < 0x1p62 ? (uint64_t)sum : 0; /* a hostile table */
}

void look_cost(const struct look *l, struct profile_cost *ret)
{
    const struct heap_header *h = &l->table->header;
    struct look_counts counts;
    uint32_t state = LOAD(h->python_state);
    look_counts(l, &counts);
    *ret = (struct profile_cost){
        .samples = LOAD(h->samples),
        .ends = LOAD(h->ends),
        .hook_ns = LOAD(h->hook_ns),
        .interval = LOAD(h->interval),
        .base_interval = l->base_interval,
        .python_version = LOAD(h->python_version),
        .python_state = state < HEAP_PYTHON_STATE_COUNT ? state : HEAP_PYTHON_CHECK,
        .python_small = LOAD(h->python_small) != 0,
        .modules = counts.modules,
        .codes = counts.codes,
        .nodes = counts.nodes,
        .sites = counts.sites,
        .live = counts.live,
        .text_bytes = counts.text_bytes,
        .arena_bytes = LOAD(h->python_arena_bytes),
        .inside_bytes = inside_bytes(l, &counts),
    };
    for (unsigned i = 0; i < HEAP_DROP_KINDS; i++)
        ret->drops[i] = LOAD(h->drops[i]);
}

bool look_is_ended(const struct look *l)
{
    return LOAD(l->table->header.is_ended) != 0;
}

void look_site(const struct look *l, uint32_t site, struct look_site *ret)
{
    *ret = (struct look_site){0};
    if (site >= at_most(LOAD_ACQUIRE(l->table->header.sites), HEAP_SITES))
        return;
    const struct heap_site *s = &l->table->sites[site];
    ret->allocated_bytes = LOAD(s->allocated_bytes);
    ret->allocated_objects_x16 = LOAD(s->allocated_objects_x16);
    ret->freed_bytes = LOAD(s->freed_bytes);
}
