/* Opens, checks and migrates the store; handles its transactions and error messages. */
#include "server/jobs/store.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/err.h"
#include "server/jobs/store_private.h"

enum { NCP_MAGIC = 0x564c, CIFS_MAGIC_OLD = (int)0xFF534D42, SMB2_MAGIC = (int)0xFE534D42 };
/* time to wait for the lock; a server that was just killed may not have exited yet */
enum { BUSY_MS = 500 };

/* Existing files contain the numbers of the states, so these must not change. */
_Static_assert(JOB_QUEUED == 0 && JOB_SUCCEEDED == 5 && JOB_LOST == 8,
               "the numbers of states are stored and must not change");

/* The index jobs_active makes it cheap to find the few active jobs among all jobs. */
static const char version_1[] = "CREATE TABLE jobs ("
                                " id INTEGER PRIMARY KEY AUTOINCREMENT,"
                                " state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 8),"
                                " priority INTEGER NOT NULL,"
                                " name TEXT NOT NULL,"
                                " rerun_of INTEGER,"
                                " memory_bytes INTEGER,"
                                " memory_from TEXT,"
                                " gpus TEXT,"
                                " run_dir TEXT,"
                                " submitted_ns INTEGER NOT NULL,"
                                " started_ns INTEGER,"
                                " ended_ns INTEGER,"
                                " reason TEXT,"
                                " request TEXT NOT NULL,"
                                " \"end\" TEXT"
                                ") STRICT;"
                                "CREATE INDEX jobs_active ON jobs (id) WHERE state < 5;"
                                "CREATE INDEX jobs_by_state ON jobs (state, id);"
                                "CREATE INDEX jobs_by_name ON jobs (name, id);"
                                "CREATE TABLE changes ("
                                " job INTEGER NOT NULL,"
                                " n INTEGER NOT NULL,"
                                " t_ns INTEGER NOT NULL,"
                                " state INTEGER NOT NULL,"
                                " reason TEXT,"
                                " PRIMARY KEY (job, n)"
                                ") STRICT, WITHOUT ROWID;"
                                "CREATE TABLE peaks ("
                                " n INTEGER PRIMARY KEY,"
                                " name TEXT NOT NULL,"
                                " t_ns INTEGER NOT NULL,"
                                " peak_bytes INTEGER NOT NULL"
                                ") STRICT;"
                                "CREATE INDEX peaks_by_name ON peaks (name, n);"
                                "CREATE TABLE counters ("
                                " key TEXT NOT NULL PRIMARY KEY,"
                                " value REAL NOT NULL"
                                ") STRICT, WITHOUT ROWID;";

const char *const store_schema[STORE_VERSION] = {
    version_1,
    "ALTER TABLE jobs ADD COLUMN folder_id TEXT;"
    "ALTER TABLE jobs ADD COLUMN ended_age_ns INTEGER;",
};

/* ---- errors ---- */

int store_fail(struct store *s, struct err *err)
{
    int code = sqlite3_errcode(s->db) & 0xFF, errnum = sqlite3_system_errno(s->db);
    if (!errnum)
        errnum = s->errnum;
    const char *why = sqlite3_errmsg(s->db);
    switch (code) {
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
        if (code == SQLITE_FULL || errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG)
            return err_set(err, -ENOSPC,
                           "no space left for the job store %s; free some space on its disk",
                           s->path);
        return err_set(err, errnum == EACCES ? -EACCES : -EIO, "cannot access the job store %s: %s",
                       s->path, errnum ? strerror(errnum) : why);
    case SQLITE_READONLY:
    case SQLITE_PERM:
        return err_set(err, -EACCES, "cannot write the job store %s: %s", s->path, why);
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
        return err_set(err, -EBUSY,
                       "the job store %s is in use by another server; stop that one, or choose "
                       "another folder with --state-dir",
                       s->path);
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
        return err_set(err, -EBADMSG,
                       "the job store %s is damaged (%s); move it away to start with an empty one; "
                       "run folders are not affected",
                       s->path, why);
    case SQLITE_NOMEM:
        return err_set(err, -ENOMEM, "out of memory");
    default:
        return err_set(err, -EIO, "the job store %s: %s", s->path, why);
    }
}

/* ---- statements ---- */

void store_reset(sqlite3_stmt *st)
{
    if (!st)
        return;
    sqlite3_reset(st);
    sqlite3_clear_bindings(st);
}

static void settle_pending(struct store *s)
{
    if (s->pending)
        store_reset(s->pending);
    s->pending = NULL;
}

static sqlite3_stmt *store_prepare(struct store *s, const char *sql, struct err *err)
{
    sqlite3_stmt **at = s->statements, **end = at + s->statement_count;
    settle_pending(s);
    while (at < end && strcmp(sqlite3_sql(*at), sql) != 0)
        at++;
    if (at < end)
        return *at;
    assert(s->statement_count < STORE_STATEMENTS && "STORE_STATEMENTS is too small");
    if (sqlite3_prepare_v3(s->db, sql, -1, SQLITE_PREPARE_PERSISTENT, at, NULL) == SQLITE_OK)
        s->statement_count++;
    else
        store_fail(s, err);
    return *at;
}

int store_step(struct store *s, sqlite3_stmt *st, struct err *err)
{
    errno = 0;
    int r = sqlite3_step(st);
    /* errno is stored here, because sqlite3_system_errno does not report a failed commit */
    s->errnum = errno;
    return r == SQLITE_ROW ? 1 : r == SQLITE_DONE ? 0 : store_fail(s, err);
}

static void bind_whole(sqlite3_stmt *st, int at, uint64_t v)
{
    if (v)
        sqlite3_bind_int64(st, at, (sqlite3_int64)(v > INT64_MAX ? INT64_MAX : v));
}

/* Binds values to a statement. Texts are not copied, because every call resets its statement before
 * it returns. */
static sqlite3_stmt *bind_all(struct store *s, const char *sql, struct err *err, const char *types,
                              va_list ap)
{
    sqlite3_stmt *st = store_prepare(s, sql, err);
    for (int i = 0; st && types[i]; i++) {
        if (types[i] == 'i')
            sqlite3_bind_int64(st, i + 1, va_arg(ap, int64_t));
        else if (types[i] == 'n')
            bind_whole(st, i + 1, va_arg(ap, uint64_t));
        else if (types[i] == 't')
            sqlite3_bind_text(st, i + 1, va_arg(ap, const char *), -1, SQLITE_STATIC);
        else
            sqlite3_bind_double(st, i + 1, va_arg(ap, double));
    }
    return st;
}

sqlite3_stmt *store_bind(struct store *s, const char *sql, struct err *err, const char *types, ...)
{
    va_list ap;
    va_start(ap, types);
    sqlite3_stmt *st = bind_all(s, sql, err, types, ap);
    va_end(ap);
    return st;
}

int store_run(struct store *s, const char *sql, struct err *err, const char *types, ...)
{
    va_list ap;
    va_start(ap, types);
    sqlite3_stmt *st = bind_all(s, sql, err, types, ap);
    va_end(ap);
    if (!st)
        return store_fail(s, NULL);
    int r = store_step(s, st, err);
    store_reset(st);
    return r < 0 ? r : 0;
}

uint64_t store_u64(sqlite3_stmt *st, int column)
{
    sqlite3_int64 v = sqlite3_column_int64(st, column);
    return v > 0 ? (uint64_t)v : 0;
}

/* ---- transactions ---- */

static void roll_back(struct store *s)
{
    if (!sqlite3_get_autocommit(s->db)) /* if the disk is full, SQLite has already rolled back */
        store_run(s, "ROLLBACK", NULL, "");
}

int store_begin(struct store *s, struct err *err)
{
    if (s->failure)
        return err_set(err, s->failure,
                       "job store %s: a database transaction failed, and nothing was stored",
                       s->path);
    if (s->depth == 0) {
        int r = store_run(s, "BEGIN IMMEDIATE", err, "");
        if (r < 0)
            return r;
        s->last_id_before = s->last_id;
        memcpy(s->counts_before, s->counts, sizeof s->counts);
    }
    s->depth++;
    return 0;
}

int store_end(struct store *s, int r, struct err *err)
{
    if (--s->depth > 0) {
        s->failure = r < 0 ? r : s->failure;
        return r;
    }
    if (r == 0 && s->failure)
        r = err_set(err, s->failure,
                    "job store %s: a database transaction failed, and nothing was stored", s->path);
    s->failure = 0;
    if (r == 0)
        r = store_run(s, "COMMIT", err, "");
    if (r < 0) {
        roll_back(s);
        s->last_id = s->last_id_before;
        memcpy(s->counts, s->counts_before, sizeof s->counts);
    }
    return r;
}

/* ---- opening ---- */

bool store_is_local(long file_system)
{
    static const int remote[] = {NFS_SUPER_MAGIC,  SMB_SUPER_MAGIC, CIFS_MAGIC_OLD, SMB2_MAGIC,
                                 CODA_SUPER_MAGIC, AFS_SUPER_MAGIC, AFS_FS_MAGIC,   NCP_MAGIC};
    for (size_t i = 0; i < sizeof remote / sizeof *remote; i++) {
        if ((int)file_system == remote[i])
            return false;
    }
    return true;
}

static int check_place(const char *path, struct err *err)
{
    AUTO_FREE char *folder = strdup(path);
    char *slash = folder ? strrchr(folder, '/') : NULL;
    struct statfs fs;
    if (slash)
        slash[slash == folder] = '\0';
    if (!folder || statfs(slash ? folder : ".", &fs) < 0)
        return 0; /* sqlite3_open reports the error */
    if (!store_is_local((long)fs.f_type))
        return err_set(err, -EREMOTE,
                       "the job store %s would be on a network file system, whose locks are not "
                       "reliable; choose a folder on a local disk with --state-dir",
                       path);
    return 0;
}

/* Runs a pragma or a query and reads its integer result. */
static int ask(struct store *s, const char *sql, int64_t *ret, struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, sql, err);
    if (!st)
        return store_fail(s, NULL);
    int r = store_step(s, st, err);
    if (r == 1)
        *ret = sqlite3_column_int64(st, 0);
    store_reset(st);
    return r < 0 ? r : 0;
}

static int execute(struct store *s, const char *sql, struct err *err)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : store_fail(s, err);
}

/* Sets up the connection. With exclusive locking the first read takes a lock and keeps it, so that
 * a second server is refused. */
static int set_up(struct store *s, struct err *err)
{
    static const char before[] = "PRAGMA locking_mode = EXCLUSIVE;"
                                 "PRAGMA trusted_schema = OFF;"
                                 "PRAGMA cell_size_check = ON;"
                                 "PRAGMA mmap_size = 0;"
                                 "PRAGMA cache_size = -1024;"
                                 "PRAGMA temp_store = MEMORY;"
                                 "PRAGMA synchronous = FULL;";
    sqlite3_extended_result_codes(s->db, 1);
    sqlite3_busy_timeout(s->db, BUSY_MS);
    sqlite3_limit(s->db, SQLITE_LIMIT_LENGTH, STORE_TEXT_MAX);
    sqlite3_limit(s->db, SQLITE_LIMIT_ATTACHED, 0);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    return execute(s, before, err);
}

static int check_whole(struct store *s, struct err *err)
{
    sqlite3_stmt *st = store_prepare(s, "PRAGMA quick_check(1)", err);
    if (!st)
        return store_fail(s, NULL);
    int r = store_step(s, st, err);
    const char *says = r == 1 ? (const char *)sqlite3_column_text(st, 0) : NULL;
    if (r == 1 && (!says || strcmp(says, "ok") != 0))
        r = err_set(err, -EBADMSG,
                    "the job store %s is damaged (%.100s); move it away to start with an empty "
                    "one; run folders are not affected",
                    s->path, says ? says : "quick_check returned nothing");
    store_reset(st);
    return r < 0 ? r : 0;
}

static int migrate(struct store *s, int64_t version, struct err *err)
{
    char sql[128];
    snprintf(sql, sizeof sql, "PRAGMA application_id = %d; PRAGMA user_version = %d;",
             STORE_APPLICATION, STORE_VERSION);
    int r = store_run(s, "BEGIN IMMEDIATE", err, "");
    for (; r == 0 && version < STORE_VERSION; version++)
        r = execute(s, store_schema[version], err);
    if (r == 0)
        r = execute(s, sql, err);
    if (r == 0)
        r = store_run(s, "COMMIT", err, "");
    if (r < 0)
        roll_back(s);
    return r;
}

/* Checks the version and migrates the file. Writes nothing to a file of another program or of a
 * newer ebb. */
static int check_and_migrate(struct store *s, struct err *err)
{
    int64_t tables = 0, application = 0, version = 0;
    int r = ask(s, "SELECT count(*) FROM sqlite_schema", &tables, err);
    if (r == 0)
        r = ask(s, "PRAGMA application_id", &application, err);
    if (r == 0)
        r = ask(s, "PRAGMA user_version", &version, err);
    if (r < 0)
        return r;
    if (tables > 0 && application != STORE_APPLICATION)
        return err_set(
            err, -EBADMSG,
            "%s is a database of another program; move it away, or choose another folder "
            "with --state-dir",
            s->path);
    if (version > STORE_VERSION)
        return err_set(err, -ENOTSUP,
                       "the job store %s has version %lld, but this ebb supports at most version "
                       "%d; use the newer ebb that wrote it",
                       s->path, (long long)version, STORE_VERSION);
    r = execute(s,
                "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 256;"
                "PRAGMA journal_size_limit = 1048576",
                err);
    if (r == 0 && tables > 0)
        r = check_whole(s, err);
    return r == 0 && version < STORE_VERSION ? migrate(s, version < 0 ? 0 : version, err) : r;
}

static int count_states(struct store *s, struct err *err)
{
    int r = 0;
    sqlite3_stmt *st = store_bind(s, "SELECT state, count(*) FROM jobs GROUP BY state", err, "");
    while (st && (r = store_step(s, st, err)) == 1) {
        int state = sqlite3_column_int(st, 0);
        if (state >= 0 && state < JOB_STATES)
            s->counts[state] = store_u64(st, 1);
    }
    store_reset(st);
    return st ? r : store_fail(s, NULL);
}

int store_open(const char *path, struct store **ret, struct err *err)
{
    int r = check_place(path, err);
    if (r < 0)
        return r;
    struct store *s = calloc(1, sizeof *s);
    if (s)
        s->path = strdup(path);
    if (!s || !s->path) {
        free(s);
        return err_set(err, -ENOMEM, "out of memory");
    }
    /* Creates the file with mode 0600 if it does not exist. Does not open an existing one, because
     * closing the file again would drop SQLite's locks. */
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0)
        close(fd);
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    r = sqlite3_open_v2(path, &s->db, flags, NULL) == SQLITE_OK ? 0 : store_fail(s, err);
    if (r == 0)
        r = set_up(s, err);
    if (r == 0)
        r = check_and_migrate(s, err);
    if (r == 0)
        r = count_states(s, err);
    if (r == 0) /* the largest id ever used, from AUTOINCREMENT */
        r = ask(s, "SELECT seq FROM sqlite_sequence WHERE name = 'jobs'", &s->last_id, err);
    if (r < 0) {
        store_close(s);
        return r;
    }
    *ret = s;
    return 0;
}

void store_close(struct store *s)
{
    if (!s)
        return;
    settle_pending(s);
    for (size_t i = 0; i < s->statement_count; i++)
        sqlite3_finalize(s->statements[i]);
    sqlite3_close(s->db);
    free(s->path);
    free(s);
}
