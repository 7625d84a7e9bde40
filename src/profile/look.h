/* Reading a live table, which its process goes on writing and which may be hostile: every index and
 * length is checked against what was read before, nothing is read twice and believed. */
#pragma once

#include "profile/profile.h"

/* A table, mapped read-only. */
struct look {
    const struct heap_table *table;
    size_t bytes;
    int32_t pid; /* as the kernel says */
};

/* Maps the memfd FD (kept by the caller): -EBADMSG if it is none of ours or could still shrink
 * under us, -ENOTSUP if of another version. */
int look_open(int fd, int32_t pid, struct look *ret, struct err *err);
void look_close(struct look *l);

/* What the table holds that is new since the counts given, and all that lives; caller-owned,
 * reused. */
struct look_live {
    struct profile_sample *samples;
    size_t count, cap;
};
void look_live_fini(struct look_live *l);
/* All live samples now, by site. 0 or -ENOMEM. */
int look_live_read(const struct look *l, struct look_live *ret);
void look_cost(const struct look *l, struct profile_cost *ret);
/* Cumulative counters of SITE; zeros where there is no such site. */
void look_site(const struct look *l, uint32_t site, double *ret_allocated_bytes,
               double *ret_freed_bytes);
