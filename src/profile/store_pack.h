/* The blocks of heap.PID.ebbheap, from a table. Private to store_write.c and store_read.c; the
 * format is docs/heap-format.md. */
#pragma once

#include "profile/look.h"

struct buf;

#define STORE_MAGIC "EBB-HEAP"
enum { STORE_MAJOR = 1, STORE_MINOR = 0, STORE_KIND_BITS = 2 };

enum store_block {
    STORE_HEAD = 1,     /* whose heap it is */
    STORE_NEWS = 2,     /* what the table has more of */
    STORE_READING = 3,  /* what each site holds; seq counts them */
    STORE_SNAPSHOT = 4, /* every live sample */
};

/* Flags of readings and snapshots. */
enum {
    STORE_HAS_STEP = 1,
    STORE_IS_ENDED = 2,
    STORE_IS_WHOLE = 4, /* a reading that does not build on the one before */
};

/* What is kept of a site; differences of these are what a reading consists of. */
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

/* The numbers of a struct profile_cost in the order of the file; its drops come behind them. */
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
    X(inside_bytes)

#define X(field) STORE_COST_##field,
enum { STORE_COST(X) STORE_COST_NUMBERS };
#undef X

struct store_moment {
    uint64_t t_ns;
    unsigned flags;
    int64_t step;
};

void store_pack_file_head(struct buf *out);
void store_pack_head(struct buf *out, const struct look *look);
/* One block with what the table has beyond DONE, which moves on; nothing if there is nothing. */
void store_pack_news(struct buf *out, const struct look *look, struct look_counts *done);
/* What all sites hold, as changes to LAST, which becomes this reading. LIVE is by site. Returns the
 * total of live bytes. */
struct store_last {
    struct store_site *sites; /* room for HEAP_SITES */
    uint32_t count;           /* those behind it are 0 */
};
double store_pack_reading(struct buf *out, const struct look *look, const struct look_live *live,
                          const struct store_moment *at, uint64_t seq, struct store_last *last);
/* Puts LIVE in order of age within each site. */
void store_pack_snapshot(struct buf *out, struct look_live *live, const struct store_moment *at);
