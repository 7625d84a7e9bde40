/* Records and fields of a CSV file (RFC 4180), one record at a time, bounded. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/buf.h"

struct err;

enum { CSV_RECORD_MAX = 1 << 20, CSV_FIELDS_MAX = 4096 };

struct csv_field {
    size_t offset;
    size_t len;
};

struct csv_table {
    FILE *in;         /* borrowed */
    const char *name; /* for the sentences; borrowed */
    uint64_t line;    /* on which the record began, from 1 */
    bool has_newline; /* the record ended with one: it is not cut off */
    /* private */
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
/* 1 and a record (a blank line has one empty field), 0 at the end, -EBADMSG for a NUL byte, a
 * quote that is never closed, a record or a number of fields beyond the maximum; -errno when it
 * cannot be read. Every failure has a sentence with the line. */
int csv_table_next(struct csv_table *t, struct err *err);
/* Field I of the record, valid until the next; "" and *ret_len 0 when there are fewer. No NUL
 * behind it. */
const char *csv_table_field(const struct csv_table *t, size_t i, size_t *ret_len);

/* Opens PATH for csv_read and csv_read_marks: a sentence for folders, compressed files and what
 * cannot be opened. */
int csv_open(const char *path, FILE **ret, struct err *err);
