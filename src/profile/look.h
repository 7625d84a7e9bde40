/* Reads a live heap table. Its process goes on writing it, and may have written anything. Every
 * index and length is therefore checked against values that were read before, and no value is read
 * twice. */
#pragma once

#include "profile/profile.h"

/* A heap table, mapped read-only. */
struct look {
    const struct heap_table *table;
    size_t bytes;
    int32_t pid;       /* pid as reported by the kernel */
    uint64_t start_ns; /* creation time, copied from the table when it was opened */
    uint64_t base_interval;
    struct look_large *large; /* large blocks, set by look_measure; NULL before that */
    size_t n_large;
};

/* A large live block, of which its process may have touched only a part. */
struct look_large {
    uint64_t ptr, size, resident;
};

/* Measures how much of the largest blocks is resident, from the process's pagemap at PAGEMAP_FD.
 * Memory that is reserved but was never touched is then not counted as live. Until this is called,
 * blocks count with their full size. */
void look_measure(struct look *l, int pagemap_fd);

/* Maps the memfd FD, which the caller keeps. Returns -EBADMSG if it is not a heap table or could
 * still shrink, -ENOTSUP if it has another version. */
int look_open(int fd, int32_t pid, struct look *ret, struct err *err);
void look_close(struct look *l); /* unmaps the table; accepts a zeroed struct */
/* Drops the table's pages from this process's resident memory until the next reading. */
void look_rest(const struct look *l);

/* The number of complete entries in each section, at most the section's size. */
struct look_counts {
    uint32_t modules, codes, nodes, sites, live, text_bytes;
};
void look_counts(const struct look *l, struct look_counts *ret);

/* All live samples; the caller owns and reuses the buffer. */
struct look_live {
    struct profile_sample *samples;
    size_t count, cap;
};
void look_live_fini(struct look_live *l);
/* Reads all live samples, sorted by call site. A sample of an unknown call site is counted for
 * site 0. Returns 0 or -ENOMEM. */
int look_live_read(const struct look *l, struct look_live *ret);
/* Live memory by kind, estimated from the samples. */
struct look_totals {
    double heap, shared, pool, gpu;
};
void look_totals(const struct look *l, struct look_totals *ret);
/* Returns the bytes allocated by the process since its table was created. */
uint64_t look_allocated_bytes(const struct look *l);
/* GPU totals and failed requests, as PyTorch's allocator reported them. */
struct look_gpus {
    struct profile_gpu at[HEAP_GPUS];
    unsigned used; /* number of GPUs that the process used */
    uint64_t oom_count;
    struct profile_oom ooms[HEAP_OOMS]; /* failed requests in order of their number */
    size_t n_ooms;
};
void look_gpus(const struct look *l, struct look_gpus *ret);
void look_cost(const struct look *l, struct profile_cost *ret);
bool look_is_ended(const struct look *l); /* true once the process has run its exit handlers */

/* Cumulative counters of a call site; 0 for an unknown call site. */
struct look_site {
    uint64_t allocated_bytes, allocated_objects_x16, freed_bytes;
};
void look_site(const struct look *l, uint32_t site, struct look_site *ret);
