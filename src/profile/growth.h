/* Computes live bytes and growth by call site, with a verdict on each. */
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

/* A mark in the form that the verdict uses. */
struct growth_mark {
    uint64_t t_ns;
    struct verdict_mark mark;
};

/* The kind of growth that the rows show. */
enum growth_kind {
    GROWTH_OF_BASELINE, /* from the baseline at the start to the baseline at the end */
    GROWTH_SINCE,       /* memory that was allocated since from_step and is live at the end */
    GROWTH_DIFF,        /* the change of live memory from from_step to to_step */
    GROWTH_SURVIVORS,   /* memory that was allocated before from_step and is live at to_step */
};

struct growth_options {
    /* LOCATION groups call sites by the file and line of the frame that names_of_site returns;
     * PROGRAM groups them by the innermost function in the user's own files */
    enum growth_by by;
    /* Only with LOCATION. Gives a line of a library one row for each user function that called the
     * line, because one caller may keep memory that another caller frees. Also merges growing lines
     * into one row if the same user function called them and each line's growth is small compared
     * with the total: a plot that is never closed is one leak, even if a hundred lines of a
     * plotting library allocated its memory. Only the growth of baselines is merged. */
    bool minds_program;
    enum growth_kind kind;
    int64_t from_step, to_step;
    /* The verdict on the job, from all evidence. The verdicts on rows must not contradict it. If
     * the verdict on the job is undecided, rows are judged by their own readings. */
    enum verdict_word job_word;
    uint64_t until_ns;               /* data after this time is ignored; 0 for no limit */
    const struct growth_mark *marks; /* marks in time order; borrowed */
    size_t n_marks;
};

enum { GROWTH_PROGRAM_MAX = 4, GROWTH_PLACES_MAX = 3 };

/* One of the source lines merged into a row. */
struct growth_place {
    const struct name *name;
    double growth_bytes, live_bytes;
};

/* A row: one call site, or all call sites with the same key. */
struct growth_row {
    const struct name *name;   /* name to display */
    const struct name *native; /* innermost C function called below NAME, or NULL */
    /* the user's function and its callers, from names_program_of_site */
    const struct name *program[GROWTH_PROGRAM_MAX];
    size_t n_program;
    /* Call site whose stack is shown: the one that grew most, or the one with the most live bytes
     * if none grew. */
    uint32_t site;
    int gpu; /* -1: host memory */
    size_t sites;
    /* Number of source lines merged into this row; 0 if the row is not merged. PLACES holds the
     * lines that grew most. */
    size_t n_places;
    struct growth_place places[GROWTH_PLACES_MAX];
    double live_bytes, live_low, live_high; /* 95 % bounds */
    double live_objects;
    double allocated_bytes;
    double age_s; /* median age of the row's live bytes */
    /* For GROWTH_OF_BASELINE, the baseline at the end minus the baseline at the start (at the first
     * step, if there are steps). For other kinds, the bytes that the kind describes. */
    double growth_bytes;
    double growth_sigma;   /* standard deviation of growth_bytes due to sampling */
    double survivor_bytes; /* bytes allocated in the first half of the run and live at its end */
    struct verdict_result verdict;
};

struct growth {
    /* Rows that leak come first, then possible leaks, then all others. Each group is sorted by
     * growth. */
    struct growth_row *rows;
    size_t count;
    int32_t *row_of_site;                   /* row of each call site of the profile, or -1 */
    double live_bytes, live_low, live_high; /* totals of all call sites */
    double allocated_bytes;
    double span_s;
    /* Seconds from the time for which the rows are computed to the last reading; 0 if the rows are
     * those of the last reading. */
    double before_end_s;
    bool has_steps;
    int64_t first_step, last_step;
};

/* Computes a row for each key that ever had live bytes, but at most GROWTH_ROWS: those with the
 * most growth or live bytes. Returns 0, -ENOMEM, or -ENODATA with a message if there is no reading
 * or the requested steps are unknown. */
enum { GROWTH_ROWS = 512 };
int growth_of(const struct profile *p, struct names *names, const struct growth_options *options,
              struct growth *ret, struct err *err);
void growth_fini(struct growth *g);
