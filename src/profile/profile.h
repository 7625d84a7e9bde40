/* The heap of one process in memory: its stacks, what each held at each reading, and the samples
 * that lived at the kept moments. Read from a live table, or from heap.PID.ebbheap in a run folder:
 * who asks cannot tell which. Everything that ranks, draws or exports starts from here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap/table.h"

struct err;

/* Stretch of profile.text, checked. */
struct profile_text {
    const char *at; /* not NUL-terminated; raw */
    size_t len;
};

struct profile_module {
    struct profile_text path;
    uint64_t base;
    uint8_t build_id_len;
    uint8_t build_id[HEAP_BUILD_ID_MAX];
};

struct profile_code {
    struct profile_text file, name, lines;
    uint32_t first_line;
};

/* As in the table; parent < its own index, the root is node 0, and no node is deeper than
 * HEAP_STACK_MAX. The module or code that the frame names is there. */
struct profile_node {
    uint64_t frame; /* 0: not known */
    uint32_t parent;
    uint32_t depth;
};

/* What one site holds at one moment; estimates. */
struct profile_held {
    uint32_t site;
    double live_bytes, live_objects;
    double live_variance;   /* of live_bytes */
    double allocated_bytes; /* since the start; only grows */
    double freed_bytes;
    double allocated_objects; /* since the start */
};

/* A moment at which every site was read; in time order. Sites that hold nothing are left out, but
 * for the last reading: that one has every site that ever allocated. */
struct profile_reading {
    uint64_t t_ns; /* CLOCK_MONOTONIC */
    bool has_step;
    bool is_ended;                   /* the process was on its way out: what it did was done */
    int64_t step;                    /* steps done by then */
    const struct profile_held *held; /* by site, ascending */
    size_t count;
    uint64_t arena_bytes;  /* of the arenas of small Python objects; 0: not counted */
    uint64_t inside_bytes; /* of what malloc gave out and lives: not in a mapping of its own; an
                              estimate. 0: not counted */
};

/* A sample that lived at a kept moment. */
struct profile_sample {
    uint32_t site;
    uint32_t kind; /* enum heap_kind */
    uint64_t size;
    uint64_t interval;
    uint64_t born_ns;
};

/* A kept moment with every live sample: for ages and survivors. The last one is the newest state.
 */
struct profile_snapshot {
    uint64_t t_ns;
    bool has_step;
    int64_t step;
    const struct profile_sample *samples;
    size_t count;
};

/* What the library says of its own cost; as of the last reading. */
struct profile_cost {
    uint64_t samples, ends, hook_ns, interval, base_interval;
    uint64_t drops[HEAP_DROP_KINDS];
    uint32_t python_version, python_state, python_small;
    uint32_t modules, codes, nodes, sites, live; /* places used */
    uint32_t text_bytes;
    uint64_t arena_bytes;  /* of small Python objects: mapped, whether they live or not */
    uint64_t inside_bytes; /* as of struct profile_reading */
};

struct profile {
    int32_t pid;
    uint64_t start_ns; /* of the table */
    bool is_ended;
    struct profile_module *modules;
    size_t n_modules;
    struct profile_code *codes;
    size_t n_codes;
    struct profile_node *nodes; /* [0] is the root */
    size_t n_nodes;
    uint32_t *site_node; /* by site; [0] is 0, the root */
    size_t n_sites;
    struct profile_reading *readings;
    size_t n_readings;
    struct profile_snapshot *snapshots;
    size_t n_snapshots;
    struct profile_cost cost;
    char *text; /* behind every profile_text */
};

/* Everything in it was allocated, piece by piece. NULL is fine. */
void profile_free(struct profile *p);

/* 1 − exp(−size/interval) (an interval of 0 takes everything), and what a sample stands for; that
 * of no bytes stands for nothing. */
double profile_probability(uint64_t size, uint64_t interval);
double profile_weight_bytes(uint64_t size, uint64_t interval);
double profile_weight_objects(uint64_t size, uint64_t interval);

/* The moment at which STEP was done; false: before the first or after the last reading. */
bool profile_time_of(const struct profile *p, int64_t step, uint64_t *ret_ns);
/* How many readings tell what the process held when its work was done: all, but for those of its
 * last five seconds (or of as long as nothing more came, up to a tenth of its life) that come after
 * it had let go of a tenth or more of what it held, before them or at the reading before, where it
 * ended by itself. Its last seconds are those before the last reading at which it was not on its
 * way out: that may take longer than five, and be read seldom. */
size_t profile_working(const struct profile *p);
/* Of those, how many show it at work, and not on its way out. */
size_t profile_at_work(const struct profile *p);
/* What all sites held at R, in bytes. */
double profile_live_at(const struct profile_reading *r);
/* What SITE holds at R, NULL: nothing; *AT goes through its sites, which are asked for in ascending
 * order. */
const struct profile_held *profile_held_by(const struct profile_reading *r, size_t *at,
                                           uint32_t site);
/* What is certain of the growth of a site from BEFORE, NULL: it held nothing, to NOW; not below 0.
 */
double profile_sure_growth(const struct profile_held *before, const struct profile_held *now);
/* The last reading at or before T_NS; NULL: none. */
const struct profile_reading *profile_reading_at(const struct profile *p, uint64_t t_ns);
const struct profile_snapshot *profile_snapshot_at(const struct profile *p, uint64_t t_ns);
