/* Builds a small profile by hand. */
#include "profile/known_heap.h"

#include <assert.h>
#include <string.h>

static struct profile_text text(const char *s)
{
    return (struct profile_text){s, strlen(s)};
}

void known_heap_init(struct known_heap *h)
{
    *h = (struct known_heap){0};
    h->modules[0] =
        (struct profile_module){text("/gone/libgone.so.1"), 0x7f0000000000, 4, {1, 2, 3, 4}};
    h->modules[1] =
        (struct profile_module){text("/gone/\x1b[31m;odd\n.so"), 0x7f1000000000, 0, {0}};
    h->readings[0] = (struct profile_reading){.t_ns = 2000};
    h->readings[1] = (struct profile_reading){.t_ns = 5000, .held = h->held, .count = 0};
    h->profile = (struct profile){.pid = 42,
                                  .start_ns = 1000,
                                  .modules = h->modules,
                                  .n_modules = 2,
                                  .codes = h->codes,
                                  .nodes = h->nodes,
                                  .n_nodes = 1,
                                  .site_node = h->site_node,
                                  .n_sites = 1,
                                  .readings = h->readings,
                                  .n_readings = 2,
                                  .cost = {.python_version = 0x030b02f0, .base_interval = 524288}};
}

static uint32_t add_node(struct known_heap *h, uint32_t parent, uint64_t frame)
{
    assert(h->profile.n_nodes < KNOWN_NODES);
    uint32_t node = (uint32_t)h->profile.n_nodes++;
    h->nodes[node] = (struct profile_node){
        .frame = frame, .parent = parent, .depth = (uint16_t)(h->nodes[parent].depth + 1)};
    return node;
}

uint32_t known_python(struct known_heap *h, uint32_t parent, const char *file, const char *name,
                      uint32_t line)
{
    assert(h->profile.n_codes < KNOWN_CODES);
    uint64_t code = h->profile.n_codes++;
    h->codes[code] =
        (struct profile_code){.file = text(file), .name = text(name), .first_line = line};
    return add_node(h, parent,
                    HEAP_FRAME_PYTHON | code << HEAP_FRAME_CODE_SHIFT | HEAP_INSTR_UNKNOWN);
}

uint32_t known_native(struct known_heap *h, uint32_t parent, uint64_t module, uint64_t offset)
{
    return add_node(h, parent, module << HEAP_FRAME_MODULE_SHIFT | offset);
}

uint32_t known_site(struct known_heap *h, uint32_t node, double bytes, double objects,
                    double allocated)
{
    assert(h->profile.n_sites < KNOWN_SITES);
    uint32_t site = (uint32_t)h->profile.n_sites++;
    h->site_node[site] = node;
    h->held[h->readings[1].count++] = (struct profile_held){
        .site = site, .live_bytes = bytes, .live_objects = objects, .allocated_bytes = allocated};
    return site;
}
