/* The heap profile of one process: its stacks, the live bytes of each call site at each reading,
 * and the live samples at each stored snapshot. A profile is read from a live table or from
 * heap.PID.ebbheap in a run folder, with the same result, and used by ranking, rendering and
 * export. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "heap/table.h"

struct err;

/* A range of profile.text that was checked to be valid. */
struct profile_text {
    const char *at; /* untrusted bytes, not terminated by NUL */
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

/* A frame of a stack, as in the heap table. The parent of a node has a smaller index, the root is
 * node 0, and no node is deeper than HEAP_STACK_MAX. The module or code object that a frame refers
 * to exists. */
struct profile_node {
    uint64_t frame; /* 0: unknown */
    uint32_t parent;
    uint16_t depth;
    uint16_t gpu; /* GPU number in the outermost frame plus 1, or 0 for host memory */
};

/* Estimates for one call site at one reading. */
struct profile_held {
    uint32_t site; /* must be the first member, because profile_split relies on it */
    double live_bytes, live_objects;
    double live_variance;
    double allocated_bytes; /* bytes allocated since the start; never decreases */
    double freed_bytes;
    double allocated_objects; /* number of objects allocated since the start */
};

/* A time at which every call site was read. Readings are in time order. Call sites without live
 * bytes are omitted, except in the last reading, which has every call site that ever allocated. */
struct profile_reading {
    uint64_t t_ns; /* CLOCK_MONOTONIC */
    bool has_step;
    bool is_ended;                   /* true if the process had finished its work and was exiting */
    int64_t step;                    /* number of steps completed at the time of the reading */
    const struct profile_held *held; /* entries by call site, ascending */
    size_t count;
    /* Bytes of arenas mapped for small Python objects, or 0 if not counted. */
    uint64_t arena_bytes;
    /* Estimated live bytes of malloc's blocks, except blocks with a mapping of their own; 0 if not
     * counted. */
    uint64_t inside_bytes;
};

/* A sample that was live at a snapshot. */
struct profile_sample {
    uint32_t site; /* must be the first member, because profile_split relies on it */
    uint32_t kind; /* enum heap_kind */
    uint64_t size;
    uint64_t interval;
    uint64_t born_ns;
};

/* All live samples at one time, from which ages and survivors are computed. The last snapshot is
 * the newest state. */
struct profile_snapshot {
    uint64_t t_ns;
    bool has_step;
    int64_t step;
    const struct profile_sample *samples;
    size_t count;
};

/* The cost of the profiling library up to the last reading, as the library measured it. */
struct profile_cost {
    uint64_t samples, ends, hook_ns, interval, base_interval;
    uint64_t drops[HEAP_DROP_KINDS];
    uint32_t python_version, python_state, python_small;
    uint32_t modules, codes, nodes, sites, live; /* numbers of table entries in use */
    uint32_t text_bytes;
    uint64_t arena_bytes;  /* bytes mapped for small Python objects, whether live or not */
    uint64_t inside_bytes; /* estimated live bytes of malloc's blocks inside its heaps */
    uint64_t gpu_interval; /* sampling interval of GPU blocks in bytes, or 0 if unknown */
};

/* The last report of PyTorch's allocator about one GPU. */
struct profile_gpu {
    /* Number of reports so far, one for each block allocated or freed; 0 if the GPU was not
     * used. */
    uint64_t reports;
    uint64_t allocated_bytes, reserved_bytes, allocated_peak_bytes;
    /* Minimum of the allocated memory in the last quarter to half of a second before the report. */
    uint64_t low_bytes;
};

/* A GPU request that failed, and the call sites with the most live bytes on that GPU at that
 * time. */
struct profile_oom {
    uint32_t number; /* 1 for the process's first failed request, 2 for the second */
    uint32_t gpu, site;
    uint64_t t_ns;
    uint64_t request_bytes, allocated_bytes, reserved_bytes;
    struct profile_oom_site {
        uint32_t site;
        uint64_t bytes;
    } top[HEAP_OOM_SITES];
    size_t n_top;
};

struct profile {
    int32_t pid;
    uint64_t start_ns; /* time at which the heap table was created */
    bool is_ended;
    struct profile_module *modules;
    size_t n_modules;
    struct profile_code *codes;
    size_t n_codes;
    struct profile_node *nodes; /* [0] is the root of all stacks */
    size_t n_nodes;
    uint32_t *site_node; /* node of each call site; [0] is 0, the root */
    size_t n_sites;
    struct profile_reading *readings;
    size_t n_readings;
    struct profile_snapshot *snapshots;
    size_t n_snapshots;
    struct profile_cost cost;
    char *text;    /* contains every profile_text */
    uint32_t refs; /* number of references besides the first */
    /* The readings and snapshots above cover host memory. The profile GPU has the readings and
     * snapshots of GPU memory, and shares everything else with this profile. NULL if no GPU block
     * was sampled. */
    struct profile *gpu;
    struct profile *whole; /* for a GPU part, the profile that it belongs to */
    struct profile_gpu gpus[HEAP_GPUS];
    struct profile_oom ooms[HEAP_OOMS]; /* failed GPU requests in order of their number */
    size_t n_ooms;
    uint64_t oom_count; /* total number of failed requests, of which some are not stored */
};

/* Releases one reference, and frees the profile with its parts when the last reference is
 * released. P may be NULL. If P is a GPU part, the whole profile is released. */
void profile_free(struct profile *p);
/* Adds a reference and returns P; profile_free must be called once more. */
struct profile *profile_ref(struct profile *p);

/* Returns the GPU of a call site, or -1 for host memory. */
int profile_site_gpu(const struct profile *p, uint32_t site);
/* Moves the readings and snapshots of GPU call sites into P->gpu. Returns 0 or -ENOMEM. */
int profile_split(struct profile *p);

/* Returns the probability that a block is sampled: 1 − exp(−size/interval), or 1 if the interval is
 * 0. The next two functions return the weights of a sample, which are 0 for a size of 0. */
double profile_probability(uint64_t size, uint64_t interval);
double profile_weight_bytes(uint64_t size, uint64_t interval);
double profile_weight_objects(uint64_t size, uint64_t interval);

/* Rounds an estimate to a whole number; negative values and NAN become 0. */
uint64_t profile_whole(double v);
/* Finds when STEP was completed. Returns false if STEP was completed before the first reading or
 * after the last. */
bool profile_time_of(const struct profile *p, int64_t step, uint64_t *ret_ns);
/* Returns the number of readings that show the process at work. A process that is not killed
 * releases its memory before it exits, so readings at the end are left out. The last reading is
 * left out if it is more than a tenth lower than the reading before it or than a reference reading.
 * This is repeated with the new last reading. The reference is the last reading before the process
 * may have begun to release memory. The release is assumed to have begun when memory last grew, but
 * at most a tenth of the process's life before the exit, and at least five seconds before the exit.
 * These times are counted back from the last reading before the exit, because exiting may take
 * long. */
size_t profile_working(const struct profile *p);
/* Like profile_working, but also excludes readings taken while the process was exiting. */
size_t profile_at_work(const struct profile *p);
/* Returns the live bytes of all call sites at R. */
double profile_live_at(const struct profile_reading *r);
/* Returns the entry of SITE in R, or NULL. *AT is a position in R that speeds up a series of calls.
 * It must be 0 at the first call, and SITE must increase from call to call. */
const struct profile_held *profile_held_by(const struct profile_reading *r, size_t *at,
                                           uint32_t site);
/* Returns how much of a call site's growth from BEFORE to NOW is certain despite the sampling
 * error. BEFORE is NULL if the call site had no live bytes. */
double profile_sure_growth(const struct profile_held *before, const struct profile_held *now);
/* Returns the last reading or snapshot at or before T_NS, or NULL. */
const struct profile_reading *profile_reading_at(const struct profile *p, uint64_t t_ns);
const struct profile_snapshot *profile_snapshot_at(const struct profile *p, uint64_t t_ns);
