/* Reads a CSV file (RFC 4180) record by record, with bounded memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/span.h"

struct err;

enum { CSV_RECORD_MAX = 1 << 20, CSV_FIELDS_MAX = 4096 };

struct csv_field {
    size_t offset;
    size_t len;
};

struct csv_table {
    FILE *in;         /* borrowed */
    const char *name; /* file name for error messages; not owned */
    uint64_t line;    /* line number where the record begins, from 1 */
    bool has_newline; /* the record ended with a newline, so it is complete */
    /* private fields */
    bool has_begun;
    unsigned char start[3];
    size_t start_len, start_at;
    uint64_t next_line;
    struct buf text;
    struct csv_field *fields;
    size_t count, cap;
};

void csv_table_init(struct csv_table *t, FILE *in, const char *name);
void csv_table_fini(struct csv_table *t);
/* Reads the next record. Returns 1 if there is one (a blank line is a record with one empty field);
 * 0 at the end; -EBADMSG for a NUL byte, an unclosed quote, or too many bytes or fields; -errno on
 * read errors. Error messages contain the line number. */
int csv_table_next(struct csv_table *t, struct err *err);
/* Returns field I of the record, trimmed; empty if the record has fewer fields. Valid until the
 * next record is read. */
struct span csv_table_field(const struct csv_table *t, size_t i);

/* Opens PATH for csv_read or csv_read_marks. Refuses folders, compressed files and unreadable
 * files. */
int csv_open(const char *path, FILE **ret, struct err *err);
