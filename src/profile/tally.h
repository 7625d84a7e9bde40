/* Rows of call sites under way: which site belongs to which, and what each held at every reading.
 * For growth.c alone. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "profile/growth.h"

enum { TALLY_NONE = -1 };

struct row_key {
    const char *a, *b; /* may be NULL */
    uint64_t n;
    const struct name *own; /* whose function it is a row for; NULL: anybody's */
};

/* One row under way. */
struct tally {
    struct row_key key;
    uint32_t site; /* that surely grew most since the middle, else that holds most */
    double site_growth, site_live;
    size_t sites;
    double live, objects, variance, allocated; /* at the last reading */
    double most;                               /* that it ever held */
    double now, now_variance;                  /* in the reading that is being gone through */
    double first, first_variance, last;        /* floors at either end */
    double wanted;                             /* of --since */
    int32_t part_of;                           /* the row that it was merged into, or TALLY_NONE */
    double own_growth, own_live;               /* before others were merged into it */
    size_t parts;                              /* that are in it, itself included; 0: none is */
    struct verdict_series *series;             /* NULL: not among those that are judged */
};

struct tallies {
    const struct profile *p;
    const struct growth_options *o;
    struct tally *at;
    size_t count, cap;
    int32_t *of_site;
    const struct profile_held **middle; /* of each site, halfway; NULL: nothing */
    uint32_t *index;                    /* open addressing, by key; 0 empty, else row + 1 */
    size_t index_cap;
    size_t n_readings; /* that count */
};

int tallies_init(struct tallies *t);
void tallies_fini(struct tallies *t);
/* Makes a row of every site that ever held something; floors and the last reading are filled in. */
int tallies_read(struct tallies *t, struct names *names);
/* Fills the floors in again, after sites have changed their rows. */
int tallies_floors(struct tallies *t, struct names *names);
double tally_growth(const struct tally *row);
double tally_sigma(const struct tally *row); /* of its growth, by sampling alone */
/* The reading that tells what was allocated in all. */
const struct profile_reading *tallies_totals(const struct tallies *t);
/* What each row held at R: `now`. */
int tallies_at(struct tallies *t, struct names *names, const struct profile_reading *r);
/* Adds to `wanted` of SITE's row. */
int tallies_want(struct tallies *t, struct names *names, uint32_t site, double bytes);
/* `wanted`: of what lives at the end, that which was allocated since options.since_step. */
int tallies_since(struct tallies *t, struct names *names, struct err *err);
/* `wanted`: what changed from options.from_step to to_step. */
int tallies_diff(struct tallies *t, struct names *names, struct err *err);
/* Returns -ENODATA with the sentence that STEP is not there, and which are. */
int tally_no_step(const struct profile *p, int64_t step, struct err *err);
/* Of the COUNT judged ROWS those that grow, or may for all that sampling tells, and are small
 * beside what grows in all: where several share the innermost function of the program's own, they
 * become one, the one that grew most. Returns how many took others in; these come first in ROWS and
 * are to be judged again, those that were taken in are gone from it. */
size_t merge_small(struct tallies *t, struct names *names, struct tally **rows, size_t *count);
