/* Shared by the files of the store: statements and error messages. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/jobs/store.h"

enum { STORE_VERSION = 2, STORE_APPLICATION = 0x65626273 }; /* "ebbs" */
/* The SQL that migrates each version to the next. Version 0 is an empty file. */
extern const char *const store_schema[STORE_VERSION];
/* Maximum length of a text that ebb stores. A damaged file may contain a larger length. */
enum { STORE_TEXT_MAX = 8 << 20 };
enum { STORE_STATEMENTS = 48 }; /* more than the number of different statements */

struct store {
    sqlite3 *db;
    char *path;
    sqlite3_stmt *statements[STORE_STATEMENTS]; /* prepared, in the order of their first use */
    size_t statement_count;
    int errnum;            /* errno of the last step, if it failed */
    sqlite3_stmt *pending; /* the statement that owns the texts which the last call returned */
    uint64_t counts[JOB_STATES];
    int64_t last_id; /* the largest id in use */
    unsigned depth;  /* number of nested transactions */
    int failure;     /* error of a nested transaction, with which the outermost one will fail */
    /* values of counts and last_id before the outermost store_begin */
    uint64_t counts_before[JOB_STATES];
    int64_t last_id_before;
};

/* Binds values to a statement, which is prepared at its first use. Returns NULL, with an error, on
 * failure. Invalidates the pointers that the last call returned. TYPES has a letter for each value:
 * i int64_t, n uint64_t (0 becomes null), t text or NULL, d double. */
sqlite3_stmt *store_bind(struct store *s, const char *sql, struct err *err, const char *types, ...);
/* Binds and runs a statement that returns no rows. */
int store_run(struct store *s, const char *sql, struct err *err, const char *types, ...);
/* Runs a statement up to its next row. Returns 1 if there is one, 0 at the end, or -errno. */
int store_step(struct store *s, sqlite3_stmt *st, struct err *err);
void store_reset(sqlite3_stmt *st);

uint64_t store_u64(sqlite3_stmt *st, int column);
/* Converts the error of the last SQLite call to -errno and a message. */
int store_fail(struct store *s, struct err *err);
/* True if file locks are reliable on a file system of this type (f_type of statfs). */
bool store_is_local(long file_system);
