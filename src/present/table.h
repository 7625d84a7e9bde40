/* The order of the rows on the screen: a tree or a flat list, sorted, with folded branches. No
 * terminal here. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "present/frame.h"

enum table_sort { SORT_RSS, SORT_ANON, SORT_UNIQUE, SORT_RATE, SORT_PID, SORT_GPU };

/* One line of the table, top first. */
struct table_line {
    uint32_t row;  /* index into the rows */
    uint32_t slot; /* and its stable name */
    uint32_t depth;
    uint32_t below; /* how many processes there are below it */
    bool is_folded; /* and whether they are hidden */
};

/* Zeroed is a valid empty table: a tree by memory, nothing folded. */
struct table {
    enum table_sort sort;
    bool is_reversed;
    bool is_flat;
    uint32_t *folded; /* slots, ascending */
    size_t folded_count, folded_cap;

    struct table_line *lines;
    size_t count;
    /* private, by row */
    struct table_node *nodes;
    uint32_t *order; /* rows as sorted */
    size_t cap;
};

void table_fini(struct table *t);
/* Sorts anew. Parents that are their own descendants (a pid used again) are taken as roots. 0 or
 * -ENOMEM, and then there are no lines. */
int table_build(struct table *t, const struct frame_row *rows, size_t count);

/* These take effect with the next build. */
void table_toggle(struct table *t, uint32_t slot);
void table_fold_all(struct table *t); /* every branch shown now */
void table_unfold_all(struct table *t);

enum { TABLE_PREFIX_MAX = 256 };
/* "│  ├─ " of LINE, at most WIDTH columns: of deep ones the outer levels become "…". */
char *table_prefix(const struct table *t, const struct table_line *line, size_t width,
                   char out[TABLE_PREFIX_MAX]);
