/* What the exports share: what each site holds at the end, and its stack. Private to profile/. */
#pragma once

#include "profile/export.h"

struct export_site {
    uint64_t live_bytes, live_objects;           /* at the last reading */
    uint64_t allocated_bytes, allocated_objects; /* as of the last reading that names it */
};

/* One for each of P's sites; the caller frees it. -ENODATA: no reading, -ENOMEM. */
int export_sites(const struct profile *p, struct export_site **ret, struct err *err);
/* The nodes of SITE's stack, OUTERMOST first: how many, at most EXPORT_DEPTH (the innermost ones).
 */
enum { EXPORT_DEPTH = 1024 };
size_t export_stack(const struct profile *p, uint32_t site, uint32_t ret[EXPORT_DEPTH]);
int export_no_memory(struct err *err);
