/* Figures as short as a column of a table needs them, and which columns a width has room for. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "present/frame.h"

enum { CELL_MAX = 32 };

/* "0", "5B", "312K", "1.24G": at most 5 columns. Returns OUT, as the others do. */
char *cell_size(char out[CELL_MAX], uint64_t bytes);
char *cell_known(char out[CELL_MAX], bool known, uint64_t bytes); /* "–" where it is not known */
/* The same, "~1.24G" for an old figure, "–" for a missing one. */
char *cell_bytes(char out[CELL_MAX], const struct frame_bytes *v);
/* "+98.0M", "-3K", "0"; "–" while it is not known. */
char *cell_rate(char out[CELL_MAX], bool known, double bytes_per_min);
/* "+98.0 MiB/min" for running text. */
char *cell_rate_text(char out[CELL_MAX], double bytes_per_min);
/* Its first word where SHORT: "compile" of "compile worker". */
char *cell_role(char out[CELL_MAX], const char *role, bool is_short);
/* Columns of UTF-8 text that is harmless already. */
size_t cell_columns(const char *s);

struct cell_column {
    const char *title;
    int width;    /* the space behind it included */
    int priority; /* 1 goes last; 0: there is nothing to show in it */
    bool is_shown;
};
/* Shows what WIDTH has room for, the least important left out first, so that at least
 * REST columns stay for what follows. Returns how many columns the shown ones take. */
int cell_columns_fit(struct cell_column *columns, size_t count, int width, int rest);
