/* Reading a live table, which its process goes on writing and which may be hostile: every index and
 * length is checked against what was read before, nothing is read twice and believed. */
#pragma once

#include "profile/profile.h"

/* A table, mapped read-only. */
struct look {
    const struct heap_table *table;
    size_t bytes;
    int32_t pid;       /* as the kernel says */
    uint64_t start_ns; /* as the table said when it was opened */
    uint64_t base_interval;
};

/* Maps the memfd FD (kept by the caller): -EBADMSG if it is none of ours or could still shrink
 * under us, -ENOTSUP if of another version. */
int look_open(int fd, int32_t pid, struct look *ret, struct err *err);
void look_close(struct look *l); /* zeroed is fine */
/* Until the next reading the table's pages count as nobody's memory of ours. */
void look_rest(const struct look *l);

/* How much of the table is whole; within its size. */
struct look_counts {
    uint32_t modules, codes, nodes, sites, live, text_bytes;
};
void look_counts(const struct look *l, struct look_counts *ret);

/* All that lives; caller-owned, reused. */
struct look_live {
    struct profile_sample *samples;
    size_t count, cap;
};
void look_live_fini(struct look_live *l);
/* All live samples now, by site. One whose site is not there is counted for site 0. 0 or -ENOMEM.
 */
int look_live_read(const struct look *l, struct look_live *ret);
void look_cost(const struct look *l, struct profile_cost *ret);
bool look_is_ended(const struct look *l); /* its process has run its exit handlers */

/* Cumulative counters of a site; zeros where there is no such site. */
struct look_site {
    uint64_t allocated_bytes, allocated_objects_x16, freed_bytes;
};
void look_site(const struct look *l, uint32_t site, struct look_site *ret);
