/* The heap of one process as plain data that views show: live allocations by call site, how they
 * grow, and the tree of calls. It owns its texts, which are raw. JSON: docs/heap.md; "growing" in
 * run.json has rows of it. */
#pragma once

#include <jansson.h>

#include "profile/growth.h"
#include "profile/names.h"
#include "profile/profile.h"

struct marks;

struct profile_frame {
    enum name_kind kind;
    char *function, *file, *lib; /* NULL: unknown */
    bool has_line;
    uint32_t line;
    bool is_inlined, is_own; /* own: of the user's own files */
};

/* An estimate with its bounds of 95 %. */
struct profile_bytes {
    uint64_t bytes, low, high;
};

/* One of the lines that are one row, of those that grew most. */
struct profile_place {
    struct profile_frame where;
    double growth_bytes;
    uint64_t live_bytes;
};

/* A call site, or all that share what --by names. */
struct profile_row {
    struct profile_frame where; /* the line that allocates */
    bool has_in_program, has_native;
    struct profile_frame in_program; /* the innermost frame of the user's own files … */
    struct profile_frame *callers;   /* … and those of them that called it */
    size_t n_callers;
    struct profile_frame native; /* innermost C function below the line */
    struct profile_bytes live;
    uint64_t allocated_bytes, survivor_bytes;
    double live_objects, age_s;
    double growth_bytes, growth_sigma_bytes;
    struct verdict_result verdict; /* read from JSON it has no evidence */
    uint64_t stacks;               /* different ones */
    bool has_place_count;          /* it is several lines: */
    uint64_t place_count;          /* so many, */
    struct profile_place *places;  /* and the first of them */
    size_t n_places;
    struct profile_frame *stack; /* innermost first; where it was asked for */
    size_t n_stack;
};

/* A node of the tree of calls, from the outermost frame; the root has no function. */
struct profile_branch {
    struct profile_frame frame;
    uint64_t live_bytes, own_bytes;
    uint64_t left_out_bytes;         /* of children that are too small to show */
    struct profile_branch *children; /* the largest first */
    size_t n_children;
};

struct profile_view {
    int32_t pid;
    struct profile_bytes live;
    uint64_t allocated_bytes;
    double span_s;
    double before_end_s; /* as of this long before the last reading; 0: as it is */
    bool has_steps;
    struct profile_steps {
        int64_t first, last;
    } steps;
    struct profile_row *rows; /* what leaks, then what may, then the rest; each by its growth */
    size_t n_rows;
    uint64_t row_count; /* of which the first are in rows */
    struct profile_cost cost;
    bool has_tree;
    struct profile_branch tree;
};

/* The first TOP rows of G, with their stacks where STACKS. 0 or -ENOMEM, and then RET is empty. */
int profile_view_make(const struct profile *p, struct names *names, const struct growth *g,
                      size_t top, bool stacks, struct profile_view *ret);
struct profile_wants {
    struct symbols_options symbols;
    struct growth_options growth; /* its marks are those of MARKS */
    const struct marks *marks;    /* of the run */
    size_t top;                   /* rows */
    bool stacks;
    bool tree; /* without what is below a hundredth of the whole */
};
/* The same from P: names its frames and judges its growth. 0, or -errno with a sentence. */
int profile_view_of(const struct profile *p, const struct profile_wants *wants,
                    struct profile_view *ret, struct err *err);
void profile_view_fini(struct profile_view *v); /* accepts a zeroed one */

json_t *profile_json(const struct profile_view *v); /* NULL: out of memory */
/* The first N rows alone, as run.json has them. */
json_t *profile_rows_json(const struct profile_view *v, size_t n);
/* Reads those: a view with these rows and nothing else. 0 or -ENOMEM. */
int profile_rows_read(const json_t *rows, struct profile_view *ret);
