/* Reads the heap table of a running process, which keeps writing to it and may write anything.
 * Every index and length is therefore checked against values that were read before, and no value is
 * read twice. */
#pragma once

#include "profile/profile.h"

/* A heap table, mapped read-only. */
struct live_table {
    const struct heap_table *map;
    size_t bytes;
    int32_t pid;       /* pid as reported by the kernel */
    uint64_t start_ns; /* creation time, copied from the table when it was opened */
    uint64_t base_interval;
    struct live_table_large *large; /* large blocks, set by live_table_measure; NULL before that */
    size_t n_large;
};

/* A large live block. Its process may have touched only a part of it. */
struct live_table_large {
    uint64_t ptr, size, resident;
};

/* Measures how much of the largest blocks is resident, from the process's pagemap at PAGEMAP_FD.
 * Until the first call, every block counts as live in its full size. From then on, reserved memory
 * that was never touched does not count. */
void live_table_measure(struct live_table *l, int pagemap_fd);

/* Maps the memfd FD, which the caller still has to close. Returns -EBADMSG if it is not a heap
 * table or could still shrink, -ENOTSUP if it has another version. */
int live_table_open(int fd, int32_t pid, struct live_table *ret, struct err *err);
void live_table_close(struct live_table *l); /* unmaps the table; accepts a zeroed struct */
/* Drops the table's pages from this process's resident memory until the next reading. */
void live_table_rest(const struct live_table *l);

/* The number of published entries in each section, at most the section's size. */
struct live_table_counts {
    uint32_t modules, codes, nodes, sites, live, text_bytes;
};
void live_table_counts(const struct live_table *l, struct live_table_counts *ret);

/* All live samples; the caller owns and reuses the buffer. */
struct live_samples {
    struct profile_sample *samples;
    size_t count, cap;
};
void live_samples_fini(struct live_samples *l);
/* Reads all live samples, sorted by call site. A sample whose call site is unknown is assigned to
 * call site 0. Returns 0 or -ENOMEM. */
int live_table_read(const struct live_table *l, struct live_samples *ret);
/* Live memory by kind, estimated from the samples. */
struct live_table_totals {
    double heap, shared, pool, gpu;
};
void live_table_totals(const struct live_table *l, struct live_table_totals *ret);
/* Returns the bytes allocated by the process since its table was created. */
uint64_t live_table_allocated_bytes(const struct live_table *l);
/* GPU totals and failed requests, as PyTorch's allocator reported them. */
struct live_table_gpus {
    struct profile_gpu at[HEAP_GPUS];
    unsigned used; /* number of GPUs that the process used */
    uint64_t oom_count;
    struct profile_oom ooms[HEAP_OOMS]; /* failed requests in order of their number */
    size_t n_ooms;
};
void live_table_gpus(const struct live_table *l, struct live_table_gpus *ret);
void live_table_cost(const struct live_table *l, struct profile_cost *ret);
bool live_table_is_ended(
    const struct live_table *l); /* true after the process has run its exit handlers */

/* Cumulative counters of a call site; all are 0 for an unknown call site. */
struct live_table_site {
    uint64_t allocated_bytes, allocated_objects_x16, freed_bytes;
};
void live_table_site(const struct live_table *l, uint32_t site, struct live_table_site *ret);
