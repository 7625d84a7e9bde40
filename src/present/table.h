/* The order of the rows on the screen: a tree or a flat list, sorted, with folded branches.
 * Independent of the terminal. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "present/frame.h"

enum table_sort { SORT_RSS, SORT_ANON, SORT_UNIQUE, SORT_RATE, SORT_PID, SORT_GPU };

/* One line of the table. */
struct table_line {
    uint32_t row;  /* index of the process in the rows */
    uint32_t slot; /* number that identifies the row in successive frames */
    uint32_t depth;
    uint32_t below; /* number of descendants */
    bool is_folded; /* true if the descendants are hidden */
};

/* A zeroed struct is a valid empty table: a tree sorted by memory, nothing folded. */
struct table {
    enum table_sort sort;
    bool is_reversed;
    bool is_flat;
    uint32_t *folded; /* slots of the folded branches in ascending order */
    size_t folded_count, folded_cap;

    struct table_line *lines;
    size_t count;
    /* private state of each row of the table */
    struct table_node *nodes;
    uint32_t *order; /* the rows in sorted order */
    size_t cap;
};

void table_fini(struct table *t);
/* Sorts the rows. A process that is its own ancestor (a reused pid) is treated as a root. Returns
 * 0, or -ENOMEM; the table then has no lines. */
int table_build(struct table *t, const struct frame_row *rows, size_t count);

/* The following functions take effect with the next call of table_build. */
void table_toggle(struct table *t, uint32_t slot);
void table_fold_all(struct table *t); /* folds every visible branch */
void table_unfold_all(struct table *t);

enum { TABLE_PREFIX_MAX = 256 };
/* Writes the prefix of LINE, such as "│  ├─ ", in at most WIDTH columns. In deep lines "…"
 * replaces the outer levels. */
char *table_prefix(const struct table *t, const struct table_line *line, size_t width,
                   char out[TABLE_PREFIX_MAX]);
