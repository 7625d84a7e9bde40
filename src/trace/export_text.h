/* What both exports share: numbers as text in every locale, and writing with an honest end. */
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
    struct buf buf; /* what has not been written yet */
};
/* Seconds from START to T, six decimals; negative where T is before it. */
void export_add_seconds(struct buf *out, uint64_t t_ns, uint64_t start_ns);
/* Reads back as V. Finite values only; 0 for others. */
void export_add_double(struct buf *out, double v);
/* Hands the buffer to OUT once it is worth it, or NOW. 0, -ENOMEM, -errno of the write. */
int export_write(struct export *e, bool now);
/* The rest, flushed; R is what went wrong before, if anything. Frees the buffer. */
int export_finish(struct export *e, int r, struct err *err);
