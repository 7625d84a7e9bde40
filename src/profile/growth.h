/* Call sites by what they hold and by how it grows: the verdict engine's word on each. */
#pragma once

#include "profile/names.h"
#include "profile/profile.h"
#include "verdict/verdict.h"

enum growth_by {
    GROWTH_BY_LOCATION,
    GROWTH_BY_FUNCTION,
    GROWTH_BY_FILE,
    GROWTH_BY_LIB,
    GROWTH_BY_STACK
};

struct growth_options {
    enum growth_by by; /* LOCATION: file and line of names_of_site */
    bool has_since;    /* survivors only of what was allocated after this step */
    int64_t since_step;
    bool has_diff; /* what changed between two steps */
    int64_t from_step, to_step;
    uint64_t until_ns; /* judge only what was known then; 0: all */
    struct verdict_options verdict;
};

/* A row: one site, or all that share the name asked for. */
struct growth_row {
    const struct name *name;   /* to show */
    const struct name *native; /* innermost C function below it; NULL */
    uint32_t site;             /* the one of its sites that holds most: its stack */
    size_t sites;
    double live_bytes, live_low, live_high; /* 95 % */
    double live_objects;
    double allocated_bytes;
    double age_s;          /* median age of its live bytes */
    double growth_bytes;   /* last reading less the first (or what --since, --diff ask for) */
    double survivor_bytes; /* allocated before the middle of the run, and alive at its end */
    struct verdict_result verdict;
};

struct growth {
    struct growth_row *rows; /* leaking and stepping first, by rate; then by growth; then by size */
    size_t count;
    double live_bytes, live_low, live_high; /* of all */
    double allocated_bytes;
    double span_s;
    bool has_steps;
    int64_t first_step, last_step;
};

/* 0; -ENOMEM; -ENODATA with a sentence: no reading, or the steps asked for are not there. */
int growth_of(const struct profile *p, struct names *names, const struct growth_options *options,
              struct growth *ret, struct err *err);
void growth_fini(struct growth *g);

/* Of the samples alive at TO_STEP those that were allocated before FROM_STEP, by site; the snapshot
 * at or before it is used, and told. */
struct growth_survivor {
    uint32_t site;
    double bytes, objects;
};
int growth_survivors(const struct profile *p, int64_t from_step, int64_t to_step,
                     struct growth_survivor **ret, size_t *ret_count, uint64_t *ret_snapshot_ns,
                     struct err *err);
