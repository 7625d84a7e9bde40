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
    GROWTH_BY_STACK,
    GROWTH_BY_PROGRAM
};

/* A mark of the job's, as the verdict wants it. */
struct growth_mark {
    uint64_t t_ns;
    struct verdict_mark mark;
};

struct growth_options {
    /* LOCATION: file and line of names_of_site; PROGRAM: the innermost function of the user's own
     */
    enum growth_by by;
    /* With LOCATION: a line of a library is a row for each function of the user's own that it was
     * reached from: one may keep what another lets go of. And of what grows, lines that are small
     * beside all of it are one row where they were reached from the same such function: a figure
     * that is never closed is one leak, though a hundred lines of a library made it. This not
     * where since, diff or survivors are asked for. */
    bool minds_program;
    bool has_since; /* survivors only of what was allocated after this step */
    int64_t since_step;
    bool has_diff;      /* what changed between two steps */
    bool has_survivors; /* what was allocated before from_step, and lives at to_step */
    int64_t from_step, to_step;
    uint64_t until_ns;               /* judge only what was known then; 0: all */
    const struct growth_mark *marks; /* in time order; borrowed */
    size_t n_marks;
};

enum { GROWTH_PROGRAM_MAX = 4, GROWTH_PLACES_MAX = 3 };

/* One of the lines that were made one row. */
struct growth_place {
    const struct name *name;
    double growth_bytes, live_bytes;
};

/* A row: one site, or all that share the name asked for. */
struct growth_row {
    const struct name *name;   /* to show */
    const struct name *native; /* innermost C function below it; NULL */
    /* names_program_of_site: what of the user's own made it, and who called that */
    const struct name *program[GROWTH_PROGRAM_MAX];
    size_t n_program;
    uint32_t site; /* the one of its sites that grew or holds most: its stack */
    size_t sites;
    size_t n_places; /* lines that were merged, and those of them that grew most; else 0 */
    struct growth_place places[GROWTH_PLACES_MAX];
    double live_bytes, live_low, live_high; /* 95 % */
    double live_objects;
    double allocated_bytes;
    double age_s; /* median age of its live bytes */
    /* Its floor at the end less that at the start, or at the first step where there are steps; or
     * what is asked for. */
    double growth_bytes;
    double growth_sigma;   /* what sampling alone may have made of it, one standard deviation */
    double survivor_bytes; /* allocated before the middle of the run, and alive at its end */
    struct verdict_result verdict;
};

struct growth {
    struct growth_row *rows; /* what leaks, then what may, then the rest; each by its growth */
    size_t count;
    int32_t *row_of_site;                   /* by site of the profile; -1: none */
    double live_bytes, live_low, live_high; /* of all */
    double allocated_bytes;
    double span_s;
    double before_end_s; /* it is as it was this long before the last reading; 0: as it is */
    bool has_steps;
    int64_t first_step, last_step;
};

/* Rows that ever held something, at most GROWTH_ROWS: those that grew or hold most. 0; -ENOMEM;
 * -ENODATA with a sentence: no reading, or the steps asked for are not there. */
enum { GROWTH_ROWS = 512 };
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
