/* Reads records and fields of a CSV file (RFC 4180), one record at a time, with bounded size. */
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
    const char *name; /* used in errors; borrowed */
    uint64_t line;    /* line on which the record began, from 1 */
    bool has_newline; /* the record ended with a newline, so it is not truncated */
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
/* Reads the next record. 1 (a blank line has one empty field); 0 at the end; -EBADMSG for a NUL
 * byte, an unclosed quote, or a record or number of fields beyond the maximum; -errno on read
 * errors. Errors name the line. */
int csv_table_next(struct csv_table *t, struct err *err);
/* Field I of the record without surrounding blanks, valid until the next record. Empty if the
 * record has fewer fields. */
struct span csv_table_field(const struct csv_table *t, size_t i);

/* Opens PATH for csv_read and csv_read_marks. Fails for folders, compressed files and unreadable
 * files. */
int csv_open(const char *path, FILE **ret, struct err *err);
