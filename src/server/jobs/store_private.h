/* Between the files of the store: its statements, its transactions, its sentences. */
#pragma once

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "server/jobs/store.h"

/* Every statement that is kept, with its SQL in store_sql. */
enum store_statement {
    SQL_BEGIN,
    SQL_COMMIT,
    SQL_ROLLBACK,
    SQL_SAVE,
    SQL_SAVE_RELEASE,
    SQL_SAVE_ROLLBACK,
    SQL_ADD,
    SQL_GET,
    SQL_CHANGE,
    SQL_NOTE,
    SQL_NOTE_TRIM,
    SQL_CHANGES,
    SQL_COUNT,
    SQL_LEARN,
    SQL_LEARN_TRIM_NAME,
    SQL_LEARN_TRIM,
    SQL_LEARNED,
    SQL_COUNT_UP,
    SQL_COUNTERS,
    SQL_COUNTER,
    SQL_REMOVE,
    SQL_REMOVE_CHANGES,
    SQL_STATEMENTS,
};
extern const char *const store_sql[SQL_STATEMENTS];
enum { STORE_LISTS = 16 };                                  /* kinds of lists, see store_rows.c */
enum { STORE_VERSION = 2, STORE_APPLICATION = 0x65626273 }; /* "ebbs" */
/* What leads from each version to the next; 0 is an empty file. */
extern const char *const store_schema[STORE_VERSION];
/* A text of more would be ours to be ashamed of, and is a damaged file's to claim. */
enum { STORE_TEXT_MAX = 8 << 20 };

struct store {
    sqlite3 *db;
    char *path;
    sqlite3_stmt *statements[SQL_STATEMENTS];
    sqlite3_stmt *lists[STORE_LISTS];
    int errnum;            /* of the last step, where it failed */
    sqlite3_stmt *pending; /* what the last call's pointers point into */
    uint64_t counts[JOB_STATES];
    uint64_t counts_before[JOB_STATES]; /* before store_begin */
    bool is_grouped;                    /* between store_begin and store_commit */
    int64_t last_id, last_id_before;    /* the largest in use; before store_begin */
    int group_lost;                     /* why SQLite has rolled the whole of it back; 0 */
};

/* The statement with its values; NULL with a sentence. Ends what the last call left. TYPES has a
 * letter for each value: i int64_t, n uint64_t of which 0 is null, t text or NULL, d double. */
sqlite3_stmt *store_bind(struct store *s, enum store_statement which, struct err *err,
                         const char *types, ...);
/* The same of one that returns no rows, from the first step to the reset. */
int store_run(struct store *s, enum store_statement which, struct err *err, const char *types, ...);
sqlite3_stmt *store_prepare(struct store *s, sqlite3_stmt **at, const char *sql, struct err *err);
/* 1 a row, 0 done, or -errno with a sentence. */
int store_step(struct store *s, sqlite3_stmt *st, struct err *err);
void store_reset(sqlite3_stmt *st);

/* What a call changes between these two is kept together, or not at all. */
struct store_turn {
    uint64_t counts[JOB_STATES];
};
int store_turn_begin(struct store *s, struct store_turn *turn, struct err *err);
int store_turn_end(struct store *s, const struct store_turn *turn, int r, struct err *err);

uint64_t store_u64(sqlite3_stmt *st, int column);
/* What is wrong with the last call of SQLite, as -errno and a sentence. */
int store_fail(struct store *s, struct err *err);
/* Whether locks on such a file system (statfs' f_type) can be relied on. */
bool store_is_local(long file_system);
