/* Reads memory measurements of other programs: CSV tables with a header line, and marks as JSON
 * lines. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "mark/mark.h"

struct err;

struct csv_options {
    /* name of the value column (default: the first of rss_bytes, rss_mb, rss, pss) */
    const char *column;
    const char *time_column; /* name of the time column (default: "t" if it exists) */
    const char *step_column; /* name of the step column (default: "step" if it exists) */
    /* name of the column whose values group the rows (default: "pid" if it exists) */
    const char *group;
    /* unit of the values (default: the one in the column's name, such as _bytes, _kb or _mib, else
     * B) */
    const char *unit;
    const char *marks_path; /* path of a JSON lines file with marks, or NULL */
    bool has_until;
    double until_s; /* rows with a time after this one are ignored */
};

/* Names of the units, for help texts and errors. K, M, G and T are powers of 1024, with or without
 * the "i", because the kernel's kB is 1024 bytes, and the MB of nearly every monitoring script is
 * 1024 kB. */
#define CSV_UNITS "B, kB, MB, GB, TB (powers of 1024; KiB, MiB, GiB, TiB are the same)"

/* One row. Rows arrive in file order; has_t is false if the table has no time column. */
struct csv_row {
    uint64_t line; /* line number in the file, from 1 */
    bool has_t, has_step, has_epoch;
    double t_s; /* time as given in the file, often seconds since 1970 */
    int64_t step;
    double epoch;
    uint64_t value_bytes;
    /* value of the group column, "" if the table has none; valid during the call and not
     * NUL-terminated */
    const char *group;
    size_t group_len;
    const char *phase; /* "" if none */
    size_t phase_len;
    /* values of the columns steps_per_epoch, examples and effective_batch (eff_batch); 0 if
     * unknown */
    uint64_t steps_per_epoch, examples, batch;
};
/* reading ends if the result is not 0 */
typedef int csv_row_fn(void *user, const struct csv_row *row);

/* Reads a table and calls FN for each row. Column names are compared exactly, then ignoring case.
 * Rows with an empty value, blank lines and an incomplete last line are skipped. Errors, reported
 * with line number and value, are: NaN, negative and malformed values; sizes above the memory of
 * any machine; rows with more or fewer fields than the header; a missing column (the message lists
 * the existing ones); an unknown unit. Quoted fields, CRLF and a BOM are accepted. Times may
 * decrease; the caller decides how to treat such rows. Returns 0, the nonzero result of FN, or
 * -errno (-EBADMSG if the file's content is invalid). */
int csv_read(const char *path, const struct csv_options *options, csv_row_fn *fn, void *user,
             struct err *err);
/* Like csv_read, but reads IN, which remains open. NAME is used in error messages. */
int csv_read_stream(FILE *in, const char *name, const struct csv_options *options, csv_row_fn *fn,
                    void *user, struct err *err);

/* Called for each mark in file order. T_S is the time given in the file; MARK.t_ns is not set. The
 * mark's text is in the wire format and includes the other keys of the JSON object, in upper case.
 * Objects with a "type" other than "mark" are skipped, so that an exported JSONL file can be
 * read. */
typedef int csv_mark_fn(void *user, double t_s, const struct mark *mark);
int csv_read_marks(const char *path, csv_mark_fn *fn, void *user, struct err *err);
int csv_read_marks_stream(FILE *in, const char *name, csv_mark_fn *fn, void *user, struct err *err);
