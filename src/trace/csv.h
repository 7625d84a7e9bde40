/* Other people's tables in: CSV with a header line, and marks as JSON lines beside it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "mark/mark.h"

struct err;

struct csv_options {
    const char *column;      /* value column; NULL: first of rss_bytes, rss_mb, rss, pss */
    const char *time_column; /* NULL: "t" where there is one */
    const char *step_column; /* NULL: "step" where there is one */
    const char *group;       /* NULL: "pid" where there is one */
    const char *unit;        /* NULL: from the end of the name (_bytes, _kb, _mib…), else B */
    const char *marks_path;  /* a file of marks beside it; NULL: none */
    bool has_until;
    double until_s; /* a value of the time column: nothing after it was known */
};

/* The names of the units, for help texts and sentences. K, M, G and T are powers of 1024 with or
 * without the i: the kernel's kB is one, and so is the MB of nearly every monitoring script. */
#define CSV_UNITS "B, kB, MB, GB, TB (powers of 1024; KiB, MiB, GiB, TiB are the same)"

/* One row in order of the file; has_t false for tables by step alone. */
struct csv_row {
    uint64_t line; /* in the file, from 1 */
    bool has_t, has_step, has_epoch;
    double t_s; /* as in the file (often seconds since 1970) */
    int64_t step;
    double epoch;
    uint64_t value_bytes;
    const char *group; /* text of the group column, "" if none; valid during the call, no NUL */
    size_t group_len;
    const char *phase; /* "" if none */
    size_t phase_len;
    /* of columns steps_per_epoch, examples and effective_batch (eff_batch); 0: unknown */
    uint64_t steps_per_epoch, examples, batch;
};
typedef int csv_row_fn(void *user, const struct csv_row *row); /* non-zero ends the reading */

/* Streams the table. Names of columns are compared exactly, then without regard to case. An empty
 * value cell is skipped (not read at that moment), and so are blank lines and a last line that
 * was cut off before its last field. NaN, negative and unreadable values are errors with line
 * number and value, as are sizes that no machine can have, rows with more or fewer fields than
 * the header, a missing column (the sentence lists those there are) and a unit that cannot be.
 * Quoted fields, CRLF and a BOM are fine. Time may go back: the caller decides.
 * 0, what FN returned, or -errno (-EBADMSG for what is in the file). */
int csv_read(const char *path, const struct csv_options *options, csv_row_fn *fn, void *user,
             struct err *err);
/* The same from a stream, which stays open; NAME is for the sentences. */
int csv_read_stream(FILE *in, const char *name, const struct csv_options *options, csv_row_fn *fn,
                    void *user, struct err *err);

/* Marks beside it, in order of the file; MARK.t_ns is unused, T_S is as in the file. The mark's
 * text is in the form of the wire, every other key kept there in upper case. Objects with a "type"
 * other than "mark" are passed over, so that an exported JSONL serves as well. */
typedef int csv_mark_fn(void *user, double t_s, const struct mark *mark);
int csv_read_marks(const char *path, csv_mark_fn *fn, void *user, struct err *err);
int csv_read_marks_stream(FILE *in, const char *name, csv_mark_fn *fn, void *user, struct err *err);
