/* The stacks of call sites and their values at the end of the recording, as used by all exports.
 * Private to profile/. */
#pragma once

#include "profile/export.h"

struct export_site {
    /* Live memory at the last reading before the process began to release memory for its exit. */
    uint64_t live_bytes, live_objects;
    uint64_t allocated_bytes, allocated_objects;
};

/* Returns an array with one entry per call site of P. The caller frees the array. Returns -ENODATA
 * if there is no reading, or -ENOMEM. */
int export_sites(const struct profile *p, struct export_site **ret, struct err *err);
/* Stores the nodes of SITE's stack, innermost first, and returns their number. */
size_t export_stack(const struct profile *p, uint32_t site, uint32_t ret[HEAP_STACK_MAX]);
int export_no_memory(struct err *err);
