/* Reads foreign tables: CSV with a header line, and marks as JSON lines. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "mark/mark.h"

struct err;

struct csv_options {
    const char *column;      /* value column; NULL: first of rss_bytes, rss_mb, rss, pss */
    const char *time_column; /* NULL: "t" if it exists */
    const char *step_column; /* NULL: "step" if it exists */
    const char *group;       /* NULL: "pid" if it exists */
    const char *unit; /* NULL: from the suffix of the column name (_bytes, _kb, _mib…), else B */
    const char *marks_path; /* a file of marks; NULL: none */
    bool has_until;
    double until_s; /* rows with a later time are ignored */
};

/* Names of the units, for help texts and errors. K, M, G and T are powers of 1024 with or without
 * the i, as in the kernel's kB and the MB of nearly every monitoring script. */
#define CSV_UNITS "B, kB, MB, GB, TB (powers of 1024; KiB, MiB, GiB, TiB are the same)"

/* One row. Rows are delivered in the order of the file; has_t is false if the table has no time. */
struct csv_row {
    uint64_t line; /* line number in the file, from 1 */
    bool has_t, has_step, has_epoch;
    double t_s; /* as in the file (often seconds since 1970) */
    int64_t step;
    double epoch;
    uint64_t value_bytes;
    /* text of the group column, "" if none; valid during the call, not NUL-terminated */
    const char *group;
    size_t group_len;
    const char *phase; /* "" if none */
    size_t phase_len;
    /* values of the columns steps_per_epoch, examples and effective_batch (eff_batch); 0: unknown
     */
    uint64_t steps_per_epoch, examples, batch;
};
typedef int csv_row_fn(void *user, const struct csv_row *row); /* non-zero stops reading */

/* Reads a table and calls FN for each row. Column names are compared exactly, then case-
 * insensitively. Rows with an empty value cell (no reading), blank lines and a truncated last line
 * are skipped. Errors, with line number and value: NaN, negative and unparsable values, sizes
 * beyond any machine's memory, rows with more or fewer fields than the header, a missing column
 * (the error lists the existing ones) and an unknown unit. Quoted fields, CRLF and a BOM are
 * accepted. Time may go backwards; the caller decides what to do. 0, the result of FN, or -errno
 * (-EBADMSG for the content of the file). */
int csv_read(const char *path, const struct csv_options *options, csv_row_fn *fn, void *user,
             struct err *err);
/* Like csv_read, from a stream, which is not closed. NAME is used in errors. */
int csv_read_stream(FILE *in, const char *name, const struct csv_options *options, csv_row_fn *fn,
                    void *user, struct err *err);

/* Called for each mark in the order of the file. MARK.t_ns is unused; T_S is the time in the file.
 * The mark's text is in the wire format, with every other key in upper case. Objects with a "type"
 * other than "mark" are skipped, so that an exported JSONL file can be read. */
typedef int csv_mark_fn(void *user, double t_s, const struct mark *mark);
int csv_read_marks(const char *path, csv_mark_fn *fn, void *user, struct err *err);
int csv_read_marks_stream(FILE *in, const char *name, csv_mark_fn *fn, void *user, struct err *err);
