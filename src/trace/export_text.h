/* Shared by the CSV and JSONL exports: locale-independent numbers and buffered writing. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"

struct err;
struct trace_reader;

struct export
{
    struct trace_reader *reader;
    FILE *out;
    uint64_t start_ns;
    struct buf buf; /* data that were not written yet */
};
/* Appends the seconds from START to T with six decimals; negative if T is earlier. */
void export_add_seconds(struct buf *out, uint64_t t_ns, uint64_t start_ns);
/* Appends the shortest text that parses back to V, or 0 if V is not finite. */
void export_add_double(struct buf *out, double v);
/* Writes the buffered text to OUT if there is much of it, or if NOW is set. Returns 0, -ENOMEM, or
 * -errno of the write. */
int export_write(struct export *e, bool now);
/* Writes and flushes the rest of the buffer, unless R, the result of the export so far, is an
 * error. Frees the buffer. */
int export_finish(struct export *e, int r, struct err *err);
