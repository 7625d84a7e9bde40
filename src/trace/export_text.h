/* Locale-independent number formatting and buffered writing, shared by the CSV and JSONL
 * exports. */
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
    struct buf buf; /* data not yet written to `out` */
};
/* Appends T minus START in seconds, with six decimals; negative if T is earlier. */
void export_add_seconds(struct buf *out, uint64_t t_ns, uint64_t start_ns);
/* Appends the shortest text that parses back to V, or 0 if V is not finite. */
void export_add_double(struct buf *out, double v);
/* Writes the buffer to OUT if the buffer has become large, or if NOW is set. Returns 0, -ENOMEM, or
 * -errno of the write. */
int export_write(struct export *e, bool now);
/* Writes and flushes the rest of the buffer, and frees the buffer. R is the result of the export so
 * far; nothing is written if R is an error. Reports the first error in ERR. */
int export_finish(struct export *e, int r, struct err *err);
