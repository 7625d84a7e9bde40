/* Reads the blocks of heap.PID.ebbheap into a profile. The bytes are untrusted. */
#include "profile/store.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/err.h"
#include "base/io.h"
#include "profile/store_pack.h"
#include "trace/block.h"
#include "trace/scan.h"

enum {
    /* Limits of a profile in memory. If there are more rows or readings, only every second,
     * third, … reading is kept. */
    HELD_MAX = 1 << 20, /* maximum number of rows in all readings together */
    READINGS_MAX = 1 << 14,
    UNPACKED_MAX = 1 << 30, /* maximum size of one file when decompressed; ebb never writes more */
};

/* A filter that keeps every STRIDE-th item. */
struct every {
    size_t stride, seen;
};

struct reader {
    struct profile *p;
    size_t unpacked_bytes;
    /* HEAP_SITES elements: the state of each call site at the last reading. */
    struct store_site *sites;
    /* Number of the last reading, or 0 if there is no usable reading. The next reading is then
     * usable only if it does not depend on earlier ones. */
    uint64_t seq;
    struct store_moment last; /* time of the last reading */
    bool has_last;            /* SITES is valid */
    bool is_last_kept;        /* true if the profile includes that last reading */
    size_t held;              /* number of rows in all readings */
    struct every readings, snapshots;
};

static bool is_next_kept(struct every *e)
{
    return e->seen++ % e->stride == 0;
}

static void at_least(size_t *n, size_t count)
{
    if (*n < count)
        *n = count;
}

static int read_head(struct reader *r, struct cur *c)
{
    int64_t pid = cur_zigzag(c);
    uint64_t start_ns = cur_varint(c), base_interval = cur_varint(c);
    if (c->bad || pid < INT32_MIN || pid > INT32_MAX)
        return -EBADMSG;
    r->p->pid = (int32_t)pid;
    r->p->start_ns = start_ns;
    r->p->cost.base_interval = base_interval;
    return 0;
}

/* ---- entries added to a table ---- */

static struct profile_text get_text(const struct profile *p, struct cur *c)
{
    uint64_t at = cur_varint(c), len = cur_varint(c);
    if (at > HEAP_TEXT_BYTES || len > HEAP_TEXT_BYTES - at)
        return (struct profile_text){p->text, 0};
    return (struct profile_text){p->text + at, (size_t)len};
}

struct range {
    size_t from, to;
};

static struct range get_range(struct cur *c, size_t max)
{
    uint64_t from = cur_varint(c), count = cur_varint(c);
    if (from > max || count > max - from)
        c->bad = true;
    if (c->bad)
        return (struct range){0, 0};
    return (struct range){(size_t)from, (size_t)(from + count)};
}

static void get_texts(struct profile *p, struct cur *c)
{
    struct range r = get_range(c, HEAP_TEXT_BYTES);
    size_t len = r.to - r.from;
    if (len > cur_left(c)) {
        c->bad = true;
        return;
    }
    memcpy(p->text + r.from, c->p, len);
    c->p += len;
}

static void get_modules(struct profile *p, struct cur *c)
{
    struct range r = get_range(c, HEAP_MODULES);
    for (size_t i = r.from; i < r.to && !c->bad; i++) {
        struct profile_module m = {.path = get_text(p, c), .base = cur_varint(c)};
        size_t len;
        const char *build_id = cur_blob(c, &len);
        if (len <= sizeof m.build_id) {
            memcpy(m.build_id, build_id, len);
            m.build_id_len = (uint8_t)len;
        }
        p->modules[i] = m;
        at_least(&p->n_modules, i + 1);
    }
}

static void get_codes(struct profile *p, struct cur *c)
{
    struct range r = get_range(c, HEAP_CODES);
    for (size_t i = r.from; i < r.to && !c->bad; i++) {
        struct profile_code *code = &p->codes[i];
        code->file = get_text(p, c);
        code->name = get_text(p, c);
        code->lines = get_text(p, c);
        code->first_line = (uint32_t)cur_varint(c);
        at_least(&p->n_codes, i + 1);
    }
}

static void get_nodes(struct profile *p, struct cur *c)
{
    struct range r = get_range(c, HEAP_NODES);
    for (size_t i = r.from; i < r.to && !c->bad; i++) {
        uint64_t frame = cur_varint(c), parent = cur_varint(c);
        p->nodes[i].frame = frame;
        p->nodes[i].parent =
            parent < i ? (uint32_t)parent : 0; /* an invalid parent is replaced by the root */
        at_least(&p->n_nodes, i + 1);
    }
}

static void get_sites(struct profile *p, struct cur *c)
{
    struct range r = get_range(c, HEAP_SITES);
    for (size_t i = r.from; i < r.to && !c->bad; i++) {
        uint64_t node = cur_varint(c);
        p->site_node[i] = node < HEAP_NODES ? (uint32_t)node : 0;
        at_least(&p->n_sites, i + 1);
    }
}

/* Reads new entries into P, which has zeroed room for the largest possible counts. Entries of a
 * missing block stay 0, which means no name and the root as parent. Returns 0 or -EBADMSG; entries
 * that were valid before the error are kept. */
static int read_news(struct profile *p, struct cur *c)
{
    get_texts(p, c);
    get_modules(p, c);
    get_codes(p, c);
    get_nodes(p, c);
    get_sites(p, c);
    return c->bad ? -EBADMSG : 0;
}

/* Replaces each frame that refers to a missing module or code by 0, and each missing text by an
 * empty one. */
static void check_names(struct profile *p)
{
    for (size_t i = 0; i < p->n_modules; i++)
        if (!p->modules[i].path.at)
            p->modules[i].path.at = p->text;
    for (size_t i = 0; i < p->n_codes; i++)
        if (!p->codes[i].name.at)
            p->codes[i].file.at = p->codes[i].name.at = p->codes[i].lines.at = p->text;
    for (size_t i = 0; i < p->n_nodes; i++) {
        uint64_t frame = p->nodes[i].frame;
        uint64_t code = frame >> HEAP_FRAME_CODE_SHIFT & HEAP_FRAME_CODE_MASK;
        uint64_t module = frame >> HEAP_FRAME_MODULE_SHIFT & HEAP_FRAME_MODULE_MASK;
        if (heap_frame_is_gpu(frame))
            continue;
        if (frame & HEAP_FRAME_PYTHON ? code >= p->n_codes : module > p->n_modules)
            p->nodes[i].frame = 0;
    }
}

static void check_tree(struct profile *p)
{
    at_least(&p->n_nodes, 1);
    at_least(&p->n_sites, 1);
    p->nodes[0] = (struct profile_node){0};
    p->site_node[0] = 0;
    for (size_t i = 1; i < p->n_nodes; i++) {
        struct profile_node *node = &p->nodes[i];
        if (p->nodes[node->parent].depth >= HEAP_STACK_MAX)
            node->parent = 0;
        node->depth = (uint16_t)(p->nodes[node->parent].depth + 1);
        node->gpu = p->nodes[node->parent].gpu;
        if (node->parent == 0 && heap_frame_is_gpu(node->frame))
            node->gpu = (uint16_t)((node->frame & HEAP_FRAME_OFFSET_MASK) + 1);
    }
    for (size_t i = 0; i < p->n_sites; i++)
        if (p->site_node[i] >= p->n_nodes)
            p->site_node[i] = 0;
}

/* ---- readings ---- */

static struct store_moment get_moment(struct cur *c)
{
    struct store_moment at;
    at.flags = (unsigned)cur_varint(c);
    at.t_ns = cur_varint(c);
    at.step = cur_zigzag(c);
    return at;
}

/* Reads the cost. A newer version may have more fields and more drop counters. */
static void get_cost(struct cur *c, struct profile_cost *ret)
{
    uint64_t n = cur_varint(c);
#define X(field)                                                                                   \
    if (n > 0) {                                                                                   \
        ret->field = (__typeof__(ret->field))cur_varint(c);                                        \
        n--;                                                                                       \
    }
    STORE_COST(X)
#undef X
    for (; n > 0 && !c->bad; n--)
        cur_varint(c);
    n = cur_varint(c);
    for (unsigned i = 0; i < HEAP_DROP_KINDS && n > 0; i++, n--)
        ret->drops[i] = cur_varint(c);
    for (; n > 0 && !c->bad; n--)
        cur_varint(c);
    if (ret->python_state >= HEAP_PYTHON_STATE_COUNT)
        ret->python_state = HEAP_PYTHON_CHECK;
}

/* Reads a list of changes, which ends at a gap of 0. */
static void get_changes(struct reader *r, struct cur *c)
{
    /* the first addition wraps around, so that a gap of 1 leads to call site 0 */
    uint64_t site = UINT64_MAX;
    for (;;) {
        uint64_t gap = cur_varint(c);
        if (c->bad || gap == 0)
            return;
        if (gap > HEAP_SITES || site + gap >= HEAP_SITES) {
            c->bad = true;
            return;
        }
        site += gap;
        uint8_t mask = cur_byte(c);
        for (unsigned f = 0; f < STORE_FIELDS; f++)
            if (mask >> f & 1)
                r->sites[site].v[f] += (uint64_t)cur_zigzag(c);
        at_least(&r->p->n_sites, (size_t)site + 1);
    }
}

static bool site_holds(const struct store_site *s, bool is_all)
{
    bool any = s->v[STORE_LIVE_BYTES] > 0;
    for (unsigned f = 0; is_all && f < STORE_FIELDS; f++)
        any = any || s->v[f] > 0;
    return any;
}

static struct profile_held held_of(uint32_t site, const struct store_site *s)
{
    double sd = (double)s->v[STORE_LIVE_SD];
    return (struct profile_held){
        .site = site,
        .live_bytes = (double)s->v[STORE_LIVE_BYTES],
        .live_objects = (double)s->v[STORE_LIVE_OBJECTS_X16] / 16,
        .live_variance = sd * sd,
        .allocated_bytes = (double)s->v[STORE_ALLOCATED_BYTES],
        .allocated_objects = (double)s->v[STORE_ALLOCATED_OBJECTS_X16] / 16,
        .freed_bytes = (double)s->v[STORE_FREED_BYTES],
    };
}

/* Adds the last reading to the profile, from the state of the call sites. If IS_ALL is true, the
 * reading includes call sites without live bytes. */
static int keep_reading(struct reader *r, bool is_all)
{
    size_t count = 0;
    for (size_t i = 0; i < r->p->n_sites; i++)
        count += site_holds(&r->sites[i], is_all);
    if (!is_all &&
        r->held + count >
            2 * (size_t)HELD_MAX) /* the file has more rows than the block headers announced */
        return 0;
    struct profile_held *held = calloc(count + 1, sizeof *held);
    if (!held)
        return -ENOMEM;
    size_t n = 0;
    for (size_t i = 0; i < r->p->n_sites; i++)
        if (site_holds(&r->sites[i], is_all))
            held[n++] = held_of((uint32_t)i, &r->sites[i]);
    r->held += count;
    r->p->readings[r->p->n_readings++] = (struct profile_reading){
        .t_ns = r->last.t_ns,
        .has_step = r->last.flags & STORE_HAS_STEP,
        .is_ended = r->last.flags & STORE_IS_ENDED,
        .step = r->last.step,
        .held = held,
        .count = count,
        .arena_bytes = r->p->cost.arena_bytes,
        .inside_bytes = r->p->cost.inside_bytes,
    };
    r->is_last_kept = true;
    return 0;
}

static int read_reading(struct reader *r, uint64_t seq, struct cur *c)
{
    bool is_kept = is_next_kept(&r->readings);
    struct store_moment at = get_moment(c);
    bool is_whole = at.flags & STORE_IS_WHOLE;
    bool follows = is_whole || (r->seq > 0 && seq == r->seq + 1);
    r->seq = 0;
    if (c->bad || at.t_ns < r->last.t_ns)
        return -EBADMSG;
    if (!follows) /* the reading that this one depends on is missing; this block itself is intact */
        return 0;
    if (is_whole)
        memset(r->sites, 0, r->p->n_sites * sizeof *r->sites);
    get_cost(c, &r->p->cost);
    get_changes(r, c);
    r->last = at;
    r->has_last = !c->bad;
    r->is_last_kept = false;
    if (c->bad)
        return -EBADMSG;
    r->seq = seq;
    r->p->is_ended = at.flags & STORE_IS_ENDED;
    return is_kept ? keep_reading(r, false) : 0;
}

/* ---- GPUs ---- */

static void get_gpus(struct profile *p, struct cur *c)
{
    for (uint64_t n = cur_varint(c); n > 0 && !c->bad; n--) {
        uint64_t at = cur_varint(c);
        struct profile_gpu gpu = {.reports = cur_varint(c), .allocated_bytes = cur_varint(c)};
        gpu.reserved_bytes = cur_varint(c);
        gpu.allocated_peak_bytes = cur_varint(c);
        if (at < HEAP_GPUS && !c->bad)
            p->gpus[at] = gpu;
    }
}

static void get_oom(struct cur *c, struct profile_oom *ret)
{
    *ret = (struct profile_oom){.number = (uint32_t)cur_varint(c), .gpu = (uint32_t)cur_varint(c)};
    ret->t_ns = cur_varint(c);
    ret->site = (uint32_t)cur_varint(c);
    ret->request_bytes = cur_varint(c);
    ret->allocated_bytes = cur_varint(c);
    ret->reserved_bytes = cur_varint(c);
    uint64_t n = cur_varint(c);
    for (uint64_t i = 0; i < n && !c->bad; i++) {
        struct profile_oom_site top = {.site = (uint32_t)cur_varint(c), .bytes = cur_varint(c)};
        if (i < HEAP_OOM_SITES)
            ret->top[ret->n_top++] = top;
    }
}

static int read_gpus(struct profile *p, struct cur *c)
{
    get_gpus(p, c);
    p->oom_count = cur_varint(c);
    p->n_ooms = 0;
    for (uint64_t n = cur_varint(c); n > 0 && !c->bad; n--) {
        struct profile_oom oom;
        get_oom(c, &oom);
        if (!c->bad && p->n_ooms < HEAP_OOMS)
            p->ooms[p->n_ooms++] = oom;
    }
    return c->bad ? -EBADMSG : 0;
}

/* ---- snapshots ---- */

struct sample_state {
    uint64_t site, age_ms, interval;
    unsigned kind_bits;
};

static bool get_sample(struct cur *c, uint64_t t_ns, struct sample_state *s,
                       struct profile_sample *ret)
{
    uint64_t word = cur_varint(c);
    s->age_ms += (uint64_t)cur_zigzag(c);
    uint64_t size = cur_varint(c);
    s->interval += (uint64_t)cur_zigzag(c);
    uint64_t gap = word >> s->kind_bits;
    if (c->bad || gap >= HEAP_SITES || s->site + gap >= HEAP_SITES || size == 0 || s->interval == 0)
        return false;
    s->site += gap;
    *ret = (struct profile_sample){
        .site = (uint32_t)s->site,
        .kind = (uint32_t)(word & ((1U << s->kind_bits) - 1)),
        .size = size,
        .interval = s->interval,
        .born_ns = s->age_ms <= t_ns / 1000000 ? t_ns - s->age_ms * 1000000 : 0,
    };
    return ret->kind < HEAP_KINDS;
}

static int keep_snapshot(struct reader *r, const struct store_moment *at, uint64_t count,
                         struct cur *c)
{
    struct profile *p = r->p;
    struct sample_state state = {.kind_bits = store_kind_bits(at->flags)};
    struct profile_sample *samples = calloc(count + 1, sizeof *samples);
    if (!samples)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++)
        if (!get_sample(c, at->t_ns, &state, &samples[i])) {
            free(samples);
            return -EBADMSG;
        }
    if (count > 0)
        at_least(&p->n_sites, (size_t)state.site + 1);
    p->snapshots[p->n_snapshots++] = (struct profile_snapshot){
        .t_ns = at->t_ns,
        .has_step = at->flags & STORE_HAS_STEP,
        .step = at->step,
        .samples = samples,
        .count = count,
    };
    return 0;
}

static int read_snapshot(struct reader *r, bool is_last, struct cur *c)
{
    bool is_kept = is_next_kept(&r->snapshots) || is_last;
    struct store_moment at = get_moment(c);
    uint64_t count = cur_varint(c);
    size_t n = r->p->n_snapshots;
    if (c->bad || count > HEAP_LIVE || count > cur_left(c) ||
        (n > 0 && at.t_ns < r->p->snapshots[n - 1].t_ns))
        return -EBADMSG;
    return is_kept ? keep_snapshot(r, &at, count, c) : 0;
}

/* ---- the whole file ---- */

static int read_block(struct reader *r, const struct block_head *head, bool is_last,
                      const struct buf *stored)
{
    AUTO_FREE char *plain = NULL;
    if (head->raw_len > UNPACKED_MAX - r->unpacked_bytes)
        return -EBADMSG;
    r->unpacked_bytes += head->raw_len;
    int result = pack_open(stored->data, stored->len, head->raw_len, &plain);
    if (result < 0)
        return result;
    struct cur c = cur_of(plain, head->raw_len);
    switch (head->type) {
    case STORE_HEAD:
        return read_head(r, &c);
    case STORE_NEWS:
        return read_news(r->p, &c);
    case STORE_READING:
        return read_reading(r, head->seq, &c);
    case STORE_SNAPSHOT:
        return read_snapshot(r, is_last, &c);
    case STORE_GPUS:
        return read_gpus(r->p, &c);
    default: /* a kind of block that a newer version added */
        return 0;
    }
}

/* Adds call sites without live bytes to the last reading, which then has every call site. */
static int complete_last(struct reader *r)
{
    struct profile *p = r->p;
    if (!r->has_last)
        return 0;
    if (r->is_last_kept)
        free((void *)(uintptr_t)p->readings[--p->n_readings].held);
    return keep_reading(r, true);
}

static size_t stride_for(size_t count, size_t max)
{
    return count > max ? (count + max - 1) / max : 1;
}

/* Allocates room for the counts that the block headers announce. */
static int reader_prepare(struct reader *r, const struct scan *scan)
{
    size_t readings = 0, held = 0, snapshots = 0;
    for (size_t i = 0; i < scan->count; i++) {
        const struct block_head *h = &scan->blocks[i].head;
        readings += h->type == STORE_READING;
        held += h->type == STORE_READING ? (h->part < HEAP_SITES ? h->part : HEAP_SITES) : 0;
        snapshots += h->type == STORE_SNAPSHOT;
    }
    size_t by_number = stride_for(readings, READINGS_MAX), by_held = stride_for(held, HELD_MAX);
    r->readings.stride = by_number > by_held ? by_number : by_held;
    r->snapshots.stride = stride_for(snapshots, STORE_SNAPSHOTS);
    struct profile *p = r->p = calloc(1, sizeof *p);
    if (!p)
        return -ENOMEM;
    p->text = calloc(1, HEAP_TEXT_BYTES);
    p->modules = calloc(HEAP_MODULES, sizeof *p->modules);
    p->codes = calloc(HEAP_CODES, sizeof *p->codes);
    p->nodes = calloc(HEAP_NODES, sizeof *p->nodes);
    p->site_node = calloc(HEAP_SITES, sizeof *p->site_node);
    p->readings = calloc(readings / r->readings.stride + 2, sizeof *p->readings);
    p->snapshots = calloc(snapshots / r->snapshots.stride + 2, sizeof *p->snapshots);
    r->sites = calloc(HEAP_SITES, sizeof *r->sites);
    bool ok = p->text && p->modules && p->codes && p->nodes && p->site_node && p->readings &&
              p->snapshots && r->sites;
    return ok ? 0 : -ENOMEM;
}

static size_t last_snapshot(const struct scan *scan)
{
    size_t n = scan->count;
    while (n > 0 && scan->blocks[n - 1].head.type != STORE_SNAPSHOT)
        n--;
    return n;
}

/* Reads all blocks. Returns the number of usable blocks, or -ENOMEM. */
static ssize_t read_blocks(struct reader *r, int fd, const struct scan *scan,
                           struct store_damage *damage)
{
    struct buf stored = {0};
    ssize_t good = 0;
    int result = 0;
    size_t last = last_snapshot(scan);
    for (size_t i = 0; i < scan->count && result != -ENOMEM; i++) {
        const struct scan_block *b = &scan->blocks[i];
        damage->bad_bytes += b->bad_before;
        result = scan_load(fd, b, &stored);
        if (result == 0)
            result = read_block(r, &b->head, i + 1 == last, &stored);
        good += result == 0;
        damage->bad_bytes += result == 0 ? 0 : BLOCK_HEAD_BYTES + b->head.stored_len;
    }
    buf_fini(&stored);
    return result == -ENOMEM ? result : good;
}

static int check_file_head(int fd, struct err *err)
{
    uint8_t head[BLOCK_FILE_HEAD_BYTES];
    ssize_t n = pread(fd, head, sizeof head, 0);
    if (n < 0)
        return err_set(err, -errno, "cannot be read: %s", strerror(errno));
    if ((size_t)n < sizeof head || memcmp(head, STORE_MAGIC, 8) != 0)
        return err_set(err, -EBADMSG, "is not a heap history");
    struct cur c = cur_of(head + 8, 2);
    unsigned major = cur_u16le(&c);
    if (major < STORE_MAJOR_OLDEST || major > STORE_MAJOR)
        return err_set(err, -ENOTSUP,
                       "has format version %u, but this ebb reads versions %d to %d: use a newer "
                       "ebb",
                       major, STORE_MAJOR_OLDEST, STORE_MAJOR);
    return 0;
}

static int read_scanned(int fd, const struct scan *scan, struct profile **ret,
                        struct store_damage *damage, struct err *err)
{
    struct reader r = {0};
    ssize_t good = reader_prepare(&r, scan);
    if (good == 0)
        good = read_blocks(&r, fd, scan, damage);
    if (good > 0 && complete_last(&r) < 0)
        good = -ENOMEM;
    free(r.sites);
    if (good <= 0) {
        profile_free(r.p);
        return good < 0 ? err_set(err, -ENOMEM, "needs more memory than is available")
                        : err_set(err, -EBADMSG, "contains no readable block");
    }
    /* Repairs nodes and texts, so that the profile has the properties that profile.h guarantees. */
    check_tree(r.p);
    check_names(r.p);
    if (profile_split(r.p) < 0) {
        profile_free(r.p);
        return err_set(err, -ENOMEM, "needs more memory than is available");
    }
    *ret = r.p;
    return 0;
}

int store_read(int fd, struct profile **ret, struct store_damage *ret_damage, struct err *err)
{
    struct scan scan = {0};
    struct store_damage damage = {0};
    int r = check_file_head(fd, err);
    if (r < 0)
        return r;
    r = scan_file(&scan, fd);
    if (r < 0)
        err_set(err, r, "cannot be read: %s", strerror(-r));
    damage.cut_bytes = scan.cut_bytes;
    if (r == 0)
        r = read_scanned(fd, &scan, ret, &damage, err);
    scan_fini(&scan);
    if (r == 0 && ret_damage)
        *ret_damage = damage;
    return r;
}

int store_parse(const void *bytes, size_t len, struct profile **ret,
                struct store_damage *ret_damage, struct err *err)
{
    AUTO_CLOSE int fd = memfd_create("ebb-heap-history", MFD_CLOEXEC);
    int r = fd < 0 ? -errno : io_write_all(fd, bytes, len);
    if (r < 0)
        return err_set(err, r, "cannot be kept in memory: %s", strerror(-r));
    return store_read(fd, ret, ret_damage, err);
}
