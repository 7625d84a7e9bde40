/* The rows while they are computed: which call sites belong to each row, and the row's live bytes
 * at every reading. Private to growth.c and tally.c. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/texts.h"
#include "profile/growth.h"

enum { TALLY_NONE = -1 };

struct tally {
    /* The call site that grew most since the middle of the run, after the sampling error is
     * subtracted. If none certainly grew, the one with the most live bytes. */
    uint32_t site;
    double site_growth, site_live;
    size_t sites;
    double live, objects, variance, allocated; /* live and allocated memory at the last reading */
    double most;                               /* highest live bytes of any reading */
    double now, now_variance;                  /* live bytes at the current reading */
    double first, first_variance, last;        /* baselines at the start and the end of the run */
    /* bytes that options.kind requests; 0 for GROWTH_OF_BASELINE */
    double wanted;
    int32_t part_of;             /* row into which this row was merged, or TALLY_NONE */
    double own_growth, own_live; /* values before other rows were merged into this row */
    /* number of rows merged into this row, including the row itself; 0 if none was merged into
     * it */
    size_t parts;
    struct verdict_series *series; /* NULL: not judged */
};

struct tallies {
    const struct profile *p;
    const struct growth_options *o;
    struct tally *at;
    size_t count, cap;
    int32_t *of_site;
    /* For each call site: its entry in the reading in the middle of the run, or NULL. */
    const struct profile_held **middle;
    struct texts keys; /* keys of the rows, in their order */
    struct buf key;    /* buffer in which a key is built */
    size_t n_readings; /* number of readings that are evaluated */
};

int tallies_init(struct tallies *t);
void tallies_fini(struct tallies *t);
/* Creates a row for every call site that ever had live bytes, with its baselines and last
 * reading. */
int tallies_read(struct tallies *t, struct names *names);
/* Computes the baselines again after call sites have moved to other rows. */
int tallies_floors(struct tallies *t, struct names *names);
double tally_growth(const struct tally *row);
/* Returns the standard deviation of the row's growth due to sampling. */
double tally_sigma(const struct tally *row);
/* Returns the reading with the totals of allocated bytes. */
const struct profile_reading *tallies_totals(const struct tallies *t);
/* Sets `now` of each row to its live bytes at R. */
int tallies_at(struct tallies *t, struct names *names, const struct profile_reading *r);
/* Sets `wanted` to the difference that options.kind requests. */
int tallies_want(struct tallies *t, struct names *names, struct err *err);
/* Merges rows that grow, or may grow within the sampling error, and are small compared with the
 * total growth. Of the rows with the same innermost user function, the one that grew most absorbs
 * the others, which are removed from ROWS. Returns the number of rows that absorbed others. These
 * rows come first in ROWS and must be judged again. */
size_t merge_small(struct tallies *t, struct names *names, struct tally **rows, size_t *count);
