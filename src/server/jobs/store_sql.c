/* The store's tables and statements. */
#include "server/jobs/store_private.h"

/* Existing files contain the numbers of the states, so these must not change. */
_Static_assert(JOB_QUEUED == 0 && JOB_SUCCEEDED == 5 && JOB_LOST == 8,
               "the numbers of states are stored and must not change");

/* The index jobs_active makes it cheap to find the few active jobs among all. */
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

const char *const store_sql[SQL_STATEMENTS] = {
    [SQL_BEGIN] = "BEGIN IMMEDIATE",
    [SQL_COMMIT] = "COMMIT",
    [SQL_ROLLBACK] = "ROLLBACK",
    [SQL_ADD] = "INSERT INTO jobs (id, state, priority, name, rerun_of, memory_bytes, memory_from,"
                " gpus, run_dir, submitted_ns, started_ns, ended_ns, reason, request, \"end\","
                " folder_id, ended_age_ns) VALUES"
                " (?15, ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?16, ?17)",
    [SQL_GET] = "SELECT id, state, priority, name, rerun_of, memory_bytes, memory_from, gpus,"
                " run_dir, submitted_ns, started_ns, ended_ns, reason, request, \"end\","
                " folder_id, ended_age_ns FROM jobs WHERE id = ?1",
    [SQL_CHANGE] = "UPDATE jobs SET state = ?2, reason = ?3,"
                   " run_dir = iif(?2 = 0, NULL, nullif(coalesce(?4, run_dir), '')),"
                   " folder_id = iif(?2 = 0, NULL, coalesce(?11, folder_id)),"
                   " ended_age_ns = coalesce(ended_age_ns, ?12),"
                   " gpus = iif(?2 = 0, NULL, coalesce(?5, gpus)),"
                   " memory_from = coalesce(?6, memory_from),"
                   " memory_bytes = coalesce(?7, memory_bytes),"
                   " \"end\" = coalesce(?8, \"end\"),"
                   " started_ns = iif(?2 = 0, NULL, coalesce(started_ns, ?9)),"
                   " ended_ns = coalesce(ended_ns, ?10)"
                   " WHERE id = ?1",
    [SQL_NOTE] = "INSERT INTO changes (job, n, t_ns, state, reason) VALUES (?1,"
                 " (SELECT coalesce(max(n), 0) + 1 FROM changes WHERE job = ?1), ?2, ?3, ?4)",
    /* keeps the first 100 and the last 1000 changes */
    [SQL_NOTE_TRIM] = "DELETE FROM changes WHERE job = ?1 AND n > 100 AND n <="
                      " (SELECT max(n) FROM changes WHERE job = ?1) - 1000",
    [SQL_CHANGES] = "SELECT t_ns, state, reason FROM changes WHERE job = ?1 ORDER BY n",
    [SQL_COUNT] = "SELECT state, count(*) FROM jobs GROUP BY state",
    [SQL_LEARN] = "INSERT INTO peaks (name, t_ns, peak_bytes) VALUES (?1, ?2, ?3)",
    [SQL_LEARN_TRIM_NAME] = "DELETE FROM peaks WHERE name = ?1 AND n NOT IN"
                            " (SELECT n FROM peaks WHERE name = ?1 ORDER BY n DESC LIMIT 5)",
    /* names are user input, so the number of peaks is limited */
    [SQL_LEARN_TRIM] = "DELETE FROM peaks WHERE n <= (SELECT max(n) FROM peaks) - 20000",
    [SQL_LEARNED] = "SELECT max(peak_bytes) FROM peaks WHERE name = ?1",
    [SQL_COUNT_UP] = "INSERT INTO counters (key, value) VALUES (?1, ?2)"
                     " ON CONFLICT (key) DO UPDATE SET value = value + ?2",
    [SQL_COUNTERS] = "SELECT key, value FROM counters ORDER BY key",
    [SQL_COUNTER] = "SELECT value FROM counters WHERE key = ?1",
    [SQL_REMOVE] = "DELETE FROM jobs WHERE id = ?1",
    [SQL_REMOVE_CHANGES] = "DELETE FROM changes WHERE job = ?1",
};
