/* Where memory was allocated, and for whom, in a few columns: frames and rows of profile_json.
 * For view/heap.c alone. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct buf;

enum { HEAP_WHERE_COLUMNS = 160, HEAP_WHERE_SIZE = HEAP_WHERE_COLUMNS * 4 };

/* Adds "train.py:41 collate", or "c10::alloc_cpu (libc10.so)", raw; of the path what WIDTH has room
 * for, or the least that tells it from others where that is 0. */
void heap_where_add(struct buf *text, const json_t *where, size_t width);
/* Makes TEXT harmless and at most WIDTH columns; TEXT is empty then. Returns OUT. */
char *heap_where_fit(char out[HEAP_WHERE_SIZE], struct buf *text, size_t width);
/* Both. */
char *heap_where_text(char out[HEAP_WHERE_SIZE], const json_t *where, size_t width);
/* A function whose name is not known is told by its place alone: of no use below a line of Python.
 */
bool heap_where_has_name(const json_t *where);

/* Lines of which none is large, made one row: that is told by the function they are all below. */
bool heap_row_is_merged(const json_t *row);
/* The frame that a row begins with. */
const json_t *heap_row_head(const json_t *row);
/* Adds "← train.py:41 evaluate ← main": the functions of the user's own from which the head of ROW
 * was reached; nothing where there are none. Of the outer ones as many as WIDTH has room for. */
void heap_row_add_callers(struct buf *ret, const json_t *row, size_t width);
