/* Encodes a heap table as the blocks of heap.PID.ebbheap. Private to store_write.c and
 * store_read.c; docs/reference/heap-format.md describes the format. */
#pragma once

#include "profile/live_table.h"

struct buf;

#define STORE_MAGIC "EBB-HEAP"
/* From version 2 on, call sites may belong to GPU memory. An older reader would treat them as host
 * memory. */
enum { STORE_MAJOR = 2, STORE_MINOR = 0, STORE_MAJOR_OLDEST = 1 };

enum store_block {
    STORE_HEAD = 1,     /* pid, start time and base interval of the process */
    STORE_NEWS = 2,     /* entries added to the table since the last reading */
    STORE_READING = 3,  /* live bytes of each call site; seq counts readings */
    STORE_SNAPSHOT = 4, /* all live samples */
    STORE_GPUS = 5,     /* totals of each GPU and failed requests, written with a reading */
};

/* Flags of readings and snapshots in the file. */
enum {
    STORE_HAS_STEP = 1,
    STORE_IS_ENDED = 2,
    STORE_IS_WHOLE = 4,  /* set for a reading that does not depend on the previous one */
    STORE_WIDE_KIND = 8, /* set for a snapshot whose kinds take three bits instead of two */
};

static inline unsigned store_kind_bits(unsigned flags)
{
    return flags & STORE_WIDE_KIND ? 3 : 2;
}

/* The fields of a call site. A reading stores their changes since the last reading. */
enum store_field {
    STORE_LIVE_BYTES,
    STORE_LIVE_OBJECTS_X16,
    STORE_LIVE_SD, /* standard deviation of the live bytes */
    STORE_ALLOCATED_BYTES,
    STORE_ALLOCATED_OBJECTS_X16,
    STORE_FREED_BYTES,
    STORE_FIELDS
};
struct store_site {
    uint64_t v[STORE_FIELDS];
};

/* The fields of struct profile_cost, in their order in the file. The drop counters follow them. */
#define STORE_COST(X)                                                                              \
    X(samples)                                                                                     \
    X(ends)                                                                                        \
    X(hook_ns)                                                                                     \
    X(interval)                                                                                    \
    X(base_interval)                                                                               \
    X(python_version)                                                                              \
    X(python_state)                                                                                \
    X(python_small)                                                                                \
    X(modules)                                                                                     \
    X(codes)                                                                                       \
    X(nodes)                                                                                       \
    X(sites)                                                                                       \
    X(live)                                                                                        \
    X(text_bytes)                                                                                  \
    X(arena_bytes)                                                                                 \
    X(inside_bytes)                                                                                \
    X(gpu_interval)

#define X(field) STORE_COST_##field,
enum { STORE_COST(X) STORE_COST_NUMBERS };
#undef X

struct store_moment {
    uint64_t t_ns;
    unsigned flags;
    int64_t step;
};

void store_pack_file_head(struct buf *out);
void store_pack_head(struct buf *out, const struct live_table *table);
/* Compares the table with DONE, the counts at the last call. If the table has new entries, adds one
 * block with them and updates DONE. */
void store_pack_news(struct buf *out, const struct live_table *table,
                     struct live_table_counts *done);
/* Adds the totals of GPUs and the failed requests, if any. */
void store_pack_gpus(struct buf *out, const struct live_table *table);
struct store_totals {
    double host, gpu;
};
/* Adds the changes of all call sites since the reading LAST, and sets LAST to the new reading. LIVE
 * is sorted by call site. Returns the totals of live bytes. */
struct store_last {
    struct store_site *sites; /* room for HEAP_SITES */
    uint32_t count;           /* number of elements in use; all further sites are 0 */
};
struct store_totals store_pack_reading(struct buf *out, const struct live_table *table,
                                       const struct live_samples *live,
                                       const struct store_moment *at, uint64_t seq,
                                       struct store_last *last);
/* Adds a snapshot. Sorts LIVE by age within each call site. */
void store_pack_snapshot(struct buf *out, struct live_samples *live, const struct store_moment *at);
