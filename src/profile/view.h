/* The heap profile of one process as plain data for views: live allocations by call site, their
 * growth, and the call tree. The view owns its texts, which are not escaped. docs/reference/heap.md
 * describes the rows in JSON; heap.growing in run.json is a list of such rows. */
#pragma once

#include <jansson.h>

#include "profile/growth.h"
#include "profile/names.h"
#include "profile/profile.h"

struct marks;

struct profile_frame {
    enum name_kind kind;
    const char *function, *file, *lib; /* NULL: unknown */
    bool has_line;
    uint32_t line;
    bool is_inlined, is_own; /* is_own is true for a frame in the user's own files */
};
/* Returns N as a frame that borrows its texts. */
struct profile_frame profile_frame_of(const struct name *n);

/* An estimate with its 95 % bounds. */
struct profile_bytes {
    uint64_t bytes, low, high;
};

/* One of the source lines merged into a row. Only the lines that grew most are kept. */
struct profile_place {
    struct profile_frame where;
    double growth_bytes;
    uint64_t live_bytes;
};

/* A call site, or all call sites that the --by option puts into one row. */
struct profile_row {
    bool has_gpu; /* true for GPU memory, false for host memory */
    uint64_t gpu;
    struct profile_frame where; /* the allocating line */
    bool has_in_program, has_native;
    struct profile_frame in_program; /* the innermost frame in the user's own files */
    struct profile_frame *callers;   /* callers of in_program in the user's own files */
    size_t n_callers;
    struct profile_frame native; /* innermost C function called by the allocating line */
    struct profile_bytes live;
    uint64_t allocated_bytes, survivor_bytes;
    double live_objects, age_s;
    double growth_bytes, growth_sigma_bytes;
    /* Verdict on the row, without evidence if it was read from JSON. */
    struct verdict_result verdict;
    uint64_t stacks; /* number of different call stacks */
    /* True if the row is merged from several source lines. */
    bool has_place_count;
    uint64_t place_count;         /* number of merged lines */
    struct profile_place *places; /* those of the merged lines that grew most */
    size_t n_places;
    struct profile_frame *stack; /* call stack, innermost frame first, if requested */
    size_t n_stack;
};

/* A node of the call tree, which begins at the outermost frame; the root has no function. */
struct profile_branch {
    struct profile_frame frame;
    uint64_t live_bytes, own_bytes;
    uint64_t left_out_bytes;         /* bytes of children that are too small to show */
    struct profile_branch *children; /* largest first */
    size_t n_children;
};

/* A GPU that the process used, as PyTorch's allocator reported it last. */
struct profile_view_gpu {
    uint64_t gpu;
    uint64_t allocated_bytes, reserved_bytes, allocated_peak_bytes;
};

/* A GPU request that failed, with the lines that had the most live bytes at that time. */
struct profile_failure {
    uint64_t number, gpu; /* the first failed request of the process has number 1 */
    double t_s;           /* seconds since the process's heap table was created */
    bool has_step;
    int64_t step;
    uint64_t request_bytes, allocated_bytes, reserved_bytes;
    struct profile_frame where; /* line that made the request */
    struct profile_failure_line {
        struct profile_frame where;
        uint64_t live_bytes;
    } * lines; /* largest first */
    size_t n_lines;
};

struct profile_view {
    int32_t pid;
    struct profile_bytes live;
    uint64_t allocated_bytes;
    double span_s;
    /* Seconds from the time that the view shows to the last reading; 0 if the view shows the last
     * reading. */
    double before_end_s;
    bool has_steps;
    struct profile_steps {
        int64_t first, last;
    } steps;
    /* Rows that leak come first, then possible leaks, then all others. Each group is sorted by
     * growth. */
    struct profile_row *rows;
    size_t n_rows;
    uint64_t row_count; /* number of rows before the view was limited to the first n_rows */
    struct profile_cost cost;
    bool is_gpu; /* true if the rows are of GPU memory; the following fields are set only then */
    struct profile_view_gpu *gpus;
    size_t n_gpus;
    /* Number of GPU requests that ran out of memory. Only the first and the last few of them are
     * stored. */
    uint64_t failure_count;
    struct profile_failure *failures;
    size_t n_failures;
    bool has_tree;
    struct profile_branch tree;
    /* Folder in which the job was started (borrowed). Files below this folder are shown with
     * relative paths. */
    const char *cwd;
};

/* Converts the first TOP rows of G, with their stacks if STACKS is set. Returns 0, or -ENOMEM
 * and leaves RET empty. */
int profile_view_make(const struct profile *p, struct names *names, const struct growth *g,
                      size_t top, bool stacks, struct profile_view *ret);
struct profile_wants {
    struct symbols_options symbols;
    struct growth_options growth; /* options for the growth, except its marks, which are not used */
    const struct marks *marks;    /* marks of the run */
    size_t top;                   /* maximum number of rows */
    bool stacks;
    bool tree; /* the call tree is included, without branches below one percent */
};
/* Like profile_view_make, but also names the frames of P and judges its growth. Returns 0, or
 * -errno with a message. */
int profile_view_of(const struct profile *p, const struct profile_wants *wants,
                    struct profile_view *ret, struct err *err);
void profile_view_fini(struct profile_view *v); /* frees the view; accepts a zeroed struct */

/* Converts the view to JSON; returns NULL if out of memory. */
json_t *profile_json(const struct profile_view *v);
/* Converts only the first N rows, in the form that run.json uses. */
json_t *profile_rows_json(const struct profile_view *v, size_t n);
/* Reads rows from run.json into a view that has only rows. Returns 0 or -ENOMEM. */
int profile_rows_read(const json_t *rows, struct profile_view *ret);
