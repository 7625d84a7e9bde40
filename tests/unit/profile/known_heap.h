/* A small hand-made profile for the tests of names and exports. */
#pragma once

#include "profile/profile.h"

enum { KNOWN_CODES = 16, KNOWN_NODES = 64, KNOWN_SITES = 16 };

struct known_heap {
    struct profile profile;
    struct profile_module modules[2];
    struct profile_code codes[KNOWN_CODES];
    struct profile_node nodes[KNOWN_NODES];
    uint32_t site_node[KNOWN_SITES];
    struct profile_held held[KNOWN_SITES];
    struct profile_reading readings[2];
};

/* Sets up two modules whose files do not exist, "/gone/libgone.so.1" and one with an unusual path,
 * and no stacks. */
void known_heap_init(struct known_heap *h);
/* Adds a node below PARENT: a Python frame with FILE, NAME and LINE, or a native frame with MODULE
 * (1 or 2) and OFFSET. */
uint32_t known_python(struct known_heap *h, uint32_t parent, const char *file, const char *name,
                      uint32_t line);
uint32_t known_native(struct known_heap *h, uint32_t parent, uint64_t module, uint64_t offset);
/* Makes NODE a call site with the given live bytes at the last reading. */
uint32_t known_site(struct known_heap *h, uint32_t node, double bytes, double objects,
                    double allocated);
