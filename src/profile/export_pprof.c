/* Writes pprof's profile.proto, encoded by hand and gzipped. */
#include "profile/export_sites.h"

#include <errno.h>
#include <string.h>
#include <zlib.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/text.h"
#include "base/texts.h"

/* Field numbers of profile.proto. */
enum {
    PROFILE_SAMPLE_TYPE = 1,
    PROFILE_SAMPLE = 2,
    PROFILE_MAPPING = 3,
    PROFILE_LOCATION = 4,
    PROFILE_FUNCTION = 5,
    PROFILE_STRING = 6,
    PROFILE_DURATION_NS = 10,
    PROFILE_PERIOD_TYPE = 11,
    PROFILE_PERIOD = 12,
    PROFILE_COMMENT = 13,
    PROFILE_DEFAULT_TYPE = 14,
    TYPE_TYPE = 1,
    TYPE_UNIT = 2,
    SAMPLE_LOCATIONS = 1,
    SAMPLE_VALUES = 2,
    MAPPING_ID = 1,
    MAPPING_START = 2,
    MAPPING_LIMIT = 3,
    MAPPING_FILE = 5,
    MAPPING_BUILD_ID = 6,
    /* Fields 7 to 10 are flags: the mapping has functions, file names, lines, inlined frames. */
    MAPPING_HAS_FIRST = 7,
    MAPPING_HAS_LAST = 10,
    LOCATION_ID = 1,
    LOCATION_MAPPING = 2,
    LOCATION_ADDRESS = 3,
    LOCATION_LINE = 4,
    LINE_FUNCTION = 1,
    LINE_LINE = 2,
    FUNCTION_ID = 1,
    FUNCTION_NAME = 2,
    FUNCTION_SYSTEM_NAME = 3,
    FUNCTION_FILE = 4,
};

struct pprof {
    const struct profile *profile;
    struct names *names;
    struct buf out;
    struct texts strings; /* string 0 must be "", as pprof requires */
    struct numbers locations, functions;
    struct buf message, inner, clean; /* buffers reused for each message */
};

static void add_number(struct buf *b, unsigned field, uint64_t v)
{
    buf_add_varint(b, field << 3);
    buf_add_varint(b, v);
}

static void add_bytes(struct buf *b, unsigned field, const void *data, size_t len)
{
    buf_add_varint(b, field << 3 | 2);
    buf_add_blob(b, data, len);
}

/* protobuf requires UTF-8, and pprof prints the text to terminals, so it must not contain escape
 * sequences */
static uint64_t string_n(struct pprof *pp, const char *s, size_t len)
{
    uint32_t number = 0;
    buf_clear(&pp->clean);
    text_escape(&pp->clean, s, len);
    if (pp->clean.failed || texts_add(&pp->strings, pp->clean.data, pp->clean.len, &number) < 0)
        pp->out.failed = true;
    return number;
}

static uint64_t string(struct pprof *pp, const char *s)
{
    return s ? string_n(pp, s, strlen(s)) : 0;
}

static void add_type(struct pprof *pp, unsigned field, const char *type, const char *unit)
{
    buf_clear(&pp->inner);
    add_number(&pp->inner, TYPE_TYPE, string(pp, type));
    add_number(&pp->inner, TYPE_UNIT, string(pp, unit));
    add_bytes(&pp->out, field, pp->inner.data, pp->inner.len);
}

/* Returns the id (number + 1) of KEY in MAP. *ret_new is true if this call added KEY. */
static uint64_t id_of(struct pprof *pp, struct numbers *map, uint64_t key, bool *ret_new)
{
    uint32_t number;
    *ret_new = !numbers_get(map, key, &number);
    if (*ret_new) {
        number = (uint32_t)map->count;
        if (numbers_put(map, key, number) < 0)
            pp->out.failed = true;
    }
    return (uint64_t)number + 1;
}

static uint64_t function_id(struct pprof *pp, const struct name *name)
{
    uint64_t text = string(pp, name->function), file = string(pp, name->file);
    bool is_new;
    uint64_t id = id_of(pp, &pp->functions, text << 32 | file, &is_new);
    if (!is_new)
        return id;
    struct buf m = {0};
    add_number(&m, FUNCTION_ID, id);
    add_number(&m, FUNCTION_NAME, text);
    add_number(&m, FUNCTION_SYSTEM_NAME, text);
    add_number(&m, FUNCTION_FILE, file);
    add_bytes(&pp->out, PROFILE_FUNCTION, m.data, m.len);
    pp->out.failed |= m.failed;
    buf_fini(&m);
    return id;
}

static void add_lines(struct pprof *pp, const struct name *list, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        uint64_t function = function_id(pp, &list[i]);
        buf_clear(&pp->inner);
        add_number(&pp->inner, LINE_FUNCTION, function);
        add_number(&pp->inner, LINE_LINE, list[i].line);
        add_bytes(&pp->message, LOCATION_LINE, pp->inner.data, pp->inner.len);
        pp->out.failed |= pp->inner.failed;
    }
}

static uint64_t location_id(struct pprof *pp, uint32_t node)
{
    const struct profile *p = pp->profile;
    uint64_t frame = p->nodes[node].frame;
    const struct name *list;
    bool is_new;
    uint64_t id = id_of(pp, &pp->locations, frame, &is_new);
    if (!is_new)
        return id;
    size_t count = names_of_node(pp->names, node, &list);
    buf_clear(&pp->message);
    add_number(&pp->message, LOCATION_ID, id);
    if (!(frame & HEAP_FRAME_PYTHON)) {
        uint64_t module = frame >> HEAP_FRAME_MODULE_SHIFT & HEAP_FRAME_MODULE_MASK;
        bool is_known = module > 0 && module <= p->n_modules;
        if (is_known)
            add_number(&pp->message, LOCATION_MAPPING, module);
        add_number(&pp->message, LOCATION_ADDRESS,
                   (is_known ? p->modules[module - 1].base : 0) + (frame & HEAP_FRAME_OFFSET_MASK));
    }
    add_lines(pp, list, count);
    add_bytes(&pp->out, PROFILE_LOCATION, pp->message.data, pp->message.len);
    pp->out.failed |= pp->message.failed;
    return id;
}

static void add_sample(struct pprof *pp, uint32_t site, const struct export_site *s)
{
    uint32_t nodes[HEAP_STACK_MAX];
    struct buf ids = {0}, m = {0};
    size_t n = export_stack(pp->profile, site, nodes);
    if (n == 0)
        nodes[n++] = 0; /* node 0 is the root: the sample has no stack */
    for (size_t i = 0; i < n; i++)
        buf_add_varint(&ids, location_id(pp, nodes[i]));
    add_bytes(&m, SAMPLE_LOCATIONS, ids.data, ids.len);
    buf_clear(&pp->inner);
    buf_add_varint(&pp->inner, s->allocated_objects);
    buf_add_varint(&pp->inner, s->allocated_bytes);
    buf_add_varint(&pp->inner, s->live_objects);
    buf_add_varint(&pp->inner, s->live_bytes);
    add_bytes(&m, SAMPLE_VALUES, pp->inner.data, pp->inner.len);
    add_bytes(&pp->out, PROFILE_SAMPLE, m.data, m.len);
    pp->out.failed |= ids.failed || m.failed || pp->inner.failed;
    buf_fini(&ids);
    buf_fini(&m);
}

/* Returns one more than the highest address in MODULE that occurs in a stack. Modules are numbered
 * from 1. */
static uint64_t module_end(const struct profile *p, uint64_t module)
{
    uint64_t end = 1;
    for (size_t i = 1; i < p->n_nodes; i++) {
        uint64_t frame = p->nodes[i].frame, offset = frame & HEAP_FRAME_OFFSET_MASK;
        if (frame >> HEAP_FRAME_MODULE_SHIFT == module && offset >= end)
            end = offset + 1;
    }
    return end;
}

static void add_mapping(struct pprof *pp, size_t i)
{
    const struct profile_module *m = &pp->profile->modules[i];
    char id[2 * HEAP_BUILD_ID_MAX + 1] = "";
    for (size_t k = 0; k < m->build_id_len && k < HEAP_BUILD_ID_MAX; k++)
        snprintf(id + 2 * k, 3, "%02x", m->build_id[k]);
    buf_clear(&pp->message);
    add_number(&pp->message, MAPPING_ID, i + 1);
    add_number(&pp->message, MAPPING_START, m->base);
    add_number(&pp->message, MAPPING_LIMIT, m->base + module_end(pp->profile, i + 1));
    add_number(&pp->message, MAPPING_FILE, string_n(pp, m->path.at, m->path.len));
    add_number(&pp->message, MAPPING_BUILD_ID, string(pp, id));
    for (unsigned field = MAPPING_HAS_FIRST; field <= MAPPING_HAS_LAST; field++)
        add_number(&pp->message, field, 1); /* no frame needs to be symbolised by pprof */
    add_bytes(&pp->out, PROFILE_MAPPING, pp->message.data, pp->message.len);
    pp->out.failed |= pp->message.failed;
}

static void add_head(struct pprof *pp)
{
    const struct profile *p = pp->profile;
    uint64_t end = p->readings[p->n_readings - 1].t_ns;
    char comment[64];
    snprintf(comment, sizeof comment, "process %d, sampled by ebb", (int)p->pid);
    string(pp, "");
    add_type(pp, PROFILE_SAMPLE_TYPE, "alloc_objects", "count");
    add_type(pp, PROFILE_SAMPLE_TYPE, "alloc_space", "bytes");
    add_type(pp, PROFILE_SAMPLE_TYPE, "inuse_objects", "count");
    add_type(pp, PROFILE_SAMPLE_TYPE, "inuse_space", "bytes");
    add_number(&pp->out, PROFILE_DEFAULT_TYPE, string(pp, "inuse_space"));
    add_type(pp, PROFILE_PERIOD_TYPE, "space", "bytes");
    add_number(&pp->out, PROFILE_PERIOD, p->cost.base_interval);
    add_number(&pp->out, PROFILE_DURATION_NS, end > p->start_ns ? end - p->start_ns : 0);
    add_number(&pp->out, PROFILE_COMMENT, string(pp, comment));
}

static int write_gzip(const struct buf *b, FILE *out)
{
    unsigned char chunk[1 << 14];
    z_stream z = {.next_in = (Bytef *)b->data, .avail_in = (uInt)b->len};
    int r =
        deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY);
    if (r != Z_OK)
        return -ENOMEM;
    do {
        z.next_out = chunk;
        z.avail_out = sizeof chunk;
        r = deflate(&z, Z_FINISH);
        fwrite(chunk, 1, sizeof chunk - z.avail_out, out);
    } while (r == Z_OK);
    deflateEnd(&z);
    return r == Z_STREAM_END ? 0 : -EIO;
}

static void fini(struct pprof *pp)
{
    buf_fini(&pp->out);
    buf_fini(&pp->message);
    buf_fini(&pp->inner);
    buf_fini(&pp->clean);
    texts_fini(&pp->strings);
    numbers_fini(&pp->locations);
    numbers_fini(&pp->functions);
}

int profile_export_pprof(const struct profile *p, struct names *names, FILE *out, struct err *err)
{
    AUTO_FREE struct export_site *sites = NULL;
    struct pprof pp = {.profile = p, .names = names};
    int r = export_sites(p, &sites, err);
    if (r < 0)
        return r;
    add_head(&pp);
    for (size_t i = 0; i < p->n_modules; i++)
        add_mapping(&pp, i);
    for (uint32_t i = 0; i < p->n_sites; i++)
        if (sites[i].allocated_bytes || sites[i].live_bytes)
            add_sample(&pp, i, &sites[i]);
    for (size_t i = 0; i < pp.strings.count; i++)
        add_bytes(&pp.out, PROFILE_STRING, pp.strings.items[i], strlen(pp.strings.items[i]));
    if (pp.out.failed || pp.out.len > UINT32_MAX || write_gzip(&pp.out, out) < 0)
        r = export_no_memory(err);
    fini(&pp);
    return r;
}
