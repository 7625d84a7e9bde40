/* Formats numbers for the columns of a table, and chooses the columns that fit into a width. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/text.h"
#include "present/frame.h"

enum { CELL_MAX = 32 };

/* Writes "0", "5B", "312K" or "1.24G", at most 5 columns wide. Returns OUT, as the functions
 * below do. */
char *cell_size(char out[CELL_MAX], uint64_t bytes);
char *cell_known(char out[CELL_MAX], bool known, uint64_t bytes); /* "–" if unknown */
/* Like cell_size, but writes "~1.24G" for a value that is not current and "–" for a missing one. */
char *cell_bytes(char out[CELL_MAX], const struct frame_bytes *v);
/* Writes "+98.0M", "-3K", "0", or "–" if unknown. */
char *cell_rate(char out[CELL_MAX], bool known, double bytes_per_min);
/* Writes "+98.0 MiB/min", for running text. */
char *cell_rate_text(char out[CELL_MAX], double bytes_per_min);
/* Writes "1.24 GiB" or "+98.0 MiB". Returns "–" if the value is unknown or not a size. */
const char *known_size(char out[TEXT_SIZE_MAX], bool has, double bytes);
const char *known_change(char out[TEXT_SIZE_MAX], bool has, double bytes);
/* Writes the role or, if IS_SHORT, its first word, such as "compile" for "compile worker". */
char *cell_role(char out[CELL_MAX], const char *role, bool is_short);
/* Returns the part of PATH below FOLDER. Returns the whole PATH if PATH is outside FOLDER, or if
 * FOLDER is NULL. */
const char *path_below(const char *path, const char *folder);
/* Returns the width in columns of UTF-8 text that is already escaped. */
size_t cell_columns(const char *s);

struct cell_column {
    const char *title;
    int width; /* width of the column, including the space after it */
    /* columns with larger priorities are hidden first; 0 for an empty column, which is never
     * shown */
    int priority;
    bool is_shown;
};
/* Chooses the table columns to show, so that at least REST of WIDTH screen columns remain for the
 * text after the table. The least important table columns are hidden first. Returns the width of
 * the shown columns. */
int cell_columns_fit(struct cell_column *columns, size_t count, int width, int rest);
