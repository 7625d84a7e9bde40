/* The rows of the store: jobs, their state changes, learned peaks and counters. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "base/json.h"
#include "server/jobs/store_private.h"

#define COLUMNS                                                                                    \
    "id, state, priority, name, rerun_of, memory_bytes, memory_from, gpus, run_dir, submitted_ns," \
    " started_ns, ended_ns, reason, request, \"end\", folder_id, ended_age_ns"

static const char *text_at(sqlite3_stmt *st, int column)
{
    return (const char *)sqlite3_column_text(st, column);
}

/* Reads a row of a query that selects COLUMNS. */
static void read_row(sqlite3_stmt *st, struct store_job *ret)
{
    int state = sqlite3_column_int(st, 1);
    const char *name = text_at(st, 3), *request = text_at(st, 13);
    *ret = (struct store_job){
        .id = sqlite3_column_int64(st, 0),
        .state = state >= 0 && state < JOB_STATES ? (enum job_state)state : JOB_LOST,
        .priority = sqlite3_column_int(st, 2),
        .name = name ? name : "",
        .rerun_of = sqlite3_column_int64(st, 4),
        .memory_bytes = store_u64(st, 5),
        .memory_from = text_at(st, 6),
        .gpus = text_at(st, 7),
        .run_dir = text_at(st, 8),
        .submitted_ns = store_u64(st, 9),
        .started_ns = store_u64(st, 10),
        .ended_ns = store_u64(st, 11),
        .reason = text_at(st, 12),
        .request = request ? request : "{}",
        .end = text_at(st, 14),
        .folder_id = text_at(st, 15),
        .ended_age_ns = store_u64(st, 16),
    };
}

static int note_change(struct store *s, int64_t id, uint64_t at_ns, enum job_state state,
                       const char *reason, struct err *err)
{
    int r = store_run(s,
                      "INSERT INTO changes (job, n, t_ns, state, reason) VALUES (?1,"
                      " (SELECT coalesce(max(n), 0) + 1 FROM changes WHERE job = ?1), ?2, ?3, ?4)",
                      err, "iiit", id, (int64_t)at_ns, (int64_t)state, reason);
    /* keeps the first 100 and the last 1000 changes */
    return r < 0 ? r
                 : store_run(s,
                             "DELETE FROM changes WHERE job = ?1 AND n > 100 AND n <="
                             " (SELECT max(n) FROM changes WHERE job = ?1) - 1000",
                             err, "i", id);
}

int64_t store_next_id(const struct store *s)
{
    return s->last_id + 1;
}

void store_ids_above(struct store *s, int64_t id)
{
    s->last_id = id > s->last_id ? id : s->last_id;
}

int store_add(struct store *s, const struct store_job *job, int64_t *ret_id, struct err *err)
{
    const int64_t id = store_next_id(s);
    if ((unsigned)job->state >= JOB_STATES)
        return err_set(err, -EINVAL, "invalid job state %d", (int)job->state);
    int r = store_begin(s, err);
    if (r < 0)
        return r;
    r = store_run(s,
                  "INSERT INTO jobs (" COLUMNS ") VALUES"
                  " (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                  err, "iiitnntttinnttttn", id, (int64_t)job->state, (int64_t)job->priority,
                  job->name, (uint64_t)job->rerun_of, job->memory_bytes, job->memory_from,
                  job->gpus, job->run_dir, (int64_t)job->submitted_ns, job->started_ns,
                  job->ended_ns, job->reason, job->request, job->end, job->folder_id,
                  job->ended_age_ns);
    if (r == 0) {
        s->counts[job->state]++;
        r = note_change(s, id, job->ended_ns ? job->ended_ns : job->submitted_ns, job->state,
                        job->reason, err);
    }
    if (r == 0)
        *ret_id = s->last_id = id;
    return store_end(s, r, err);
}

int store_get(struct store *s, int64_t id, struct store_job *ret, struct err *err)
{
    sqlite3_stmt *st = store_bind(s, "SELECT " COLUMNS " FROM jobs WHERE id = ?1", err, "i", id);
    if (!st)
        return store_fail(s, NULL);
    int r = store_step(s, st, err);
    if (r == 1) {
        read_row(st, ret);
        s->pending = st;
        return 0;
    }
    store_reset(st);
    return r < 0 ? r : err_set(err, -ENOENT, "no such job: %" PRId64, id);
}

static int update_row(struct store *s, int64_t id, const struct store_change *c, struct err *err)
{
    bool is_begun =
        c->state == JOB_RUNNING || c->state == JOB_CHECKPOINTING || c->state == JOB_STOPPING;
    bool is_final = job_state_is_final(c->state);
    return store_run(s,
                     "UPDATE jobs SET state = ?2, reason = ?3,"
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
                     err, "iittttntnntn", id, (int64_t)c->state, c->reason, c->run_dir, c->gpus,
                     c->memory_from, c->memory_bytes, c->end,
                     c->started_ns ? c->started_ns
                     : is_begun    ? c->at_ns
                                   : (uint64_t)0,
                     is_final ? c->at_ns : (uint64_t)0, c->folder_id,
                     is_final ? c->ended_age_ns : (uint64_t)0);
}

int store_change(struct store *s, int64_t id, const struct store_change *change, struct err *err)
{
    struct store_job job = {0};
    int r = store_get(s, id, &job, err);
    if (r < 0)
        return r;
    if (!job_state_may_follow(job.state, change->state))
        return err_set(err, -EINVAL, "job %" PRId64 " is %s and cannot become %s", id,
                       job_state_word(job.state), job_state_word(change->state));
    r = store_begin(s, err);
    if (r < 0)
        return r;
    r = update_row(s, id, change, err);
    if (r == 0)
        r = note_change(s, id, change->at_ns, change->state, change->reason, err);
    s->counts[job.state]--;
    s->counts[change->state]++;
    return store_end(s, r, err);
}

/* ---- lists ---- */

int store_list(struct store *s, const struct store_filter *f, store_job_fn *fn, void *user,
               struct err *err)
{
    const unsigned states =
        f->states ? f->states & (JOB_ACTIVE | JOB_FINAL) : JOB_ACTIVE | JOB_FINAL;
    /* each of these conditions makes SQLite use a different index */
    const char *where = f->name                           ? "name = ?3 AND (?1 >> state) & 1"
                        : __builtin_popcount(states) == 1 ? "state = ?2 AND (?1 >> state) & 1"
                        : !(states & JOB_FINAL)           ? "state < 5 AND (?1 >> state) & 1"
                                                          : "(?1 >> state) & 1";
    char sql[512];
    snprintf(sql, sizeof sql,
             "SELECT " COLUMNS " FROM jobs WHERE %s AND id < ?4 AND coalesce(ended_age_ns, 0) <= ?6"
             " ORDER BY id %s LIMIT ?5",
             where, f->oldest_first ? "" : "DESC");
    sqlite3_stmt *st =
        store_bind(s, sql, err, "iitiii", (int64_t)states, (int64_t)__builtin_ctz(states), f->name,
                   f->before > 0 ? f->before : INT64_MAX, f->limit ? (int64_t)f->limit : -1,
                   f->ended_by_age_ns ? (int64_t)f->ended_by_age_ns : INT64_MAX);
    int r;
    if (!st)
        return store_fail(s, NULL);
    while ((r = store_step(s, st, err)) == 1) {
        struct store_job job;
        read_row(st, &job);
        if (fn(user, &job) != 0) {
            r = 0;
            break;
        }
    }
    store_reset(st);
    return r;
}

int store_changes(struct store *s, int64_t id, json_t **ret, struct err *err)
{
    sqlite3_stmt *st = store_bind(
        s, "SELECT t_ns, state, reason FROM changes WHERE job = ?1 ORDER BY n", err, "i", id);
    json_t *list = json_array();
    int r = !list ? err_set(err, -ENOMEM, "out of memory") : st ? 0 : store_fail(s, NULL);
    while (r == 0 && (r = store_step(s, st, err)) == 1) {
        json_t *entry = json_pack("{s:o, s:s, s:o}", "t_s", json_seconds(store_u64(st, 0)), "state",
                                  job_state_word((enum job_state)sqlite3_column_int(st, 1)),
                                  "reason", json_text0(text_at(st, 2)));
        r = json_array_append_new(list, entry) < 0 ? err_set(err, -ENOMEM, "out of memory") : 0;
    }
    store_reset(st);
    if (r < 0) {
        json_decref(list);
        return r;
    }
    *ret = list;
    return 0;
}

/* ---- learned peaks, counters, and removing ---- */

void store_count(const struct store *s, uint64_t ret[JOB_STATES])
{
    memcpy(ret, s->counts, sizeof s->counts);
}

int store_learn(struct store *s, const char *name, uint64_t peak_bytes, uint64_t at_ns,
                struct err *err)
{
    int r = store_begin(s, err);
    if (r < 0)
        return r;
    r = store_run(s, "INSERT INTO peaks (name, t_ns, peak_bytes) VALUES (?1, ?2, ?3)", err, "tin",
                  name, (int64_t)at_ns, peak_bytes);
    if (r == 0)
        r = store_run(s,
                      "DELETE FROM peaks WHERE name = ?1 AND n NOT IN"
                      " (SELECT n FROM peaks WHERE name = ?1 ORDER BY n DESC LIMIT 5)",
                      err, "t", name);
    if (r == 0) /* users can submit any number of names, so the table is capped */
        r = store_run(s, "DELETE FROM peaks WHERE n <= (SELECT max(n) FROM peaks) - 20000", err,
                      "");
    return store_end(s, r, err);
}

uint64_t store_learned(struct store *s, const char *name)
{
    sqlite3_stmt *st =
        store_bind(s, "SELECT max(peak_bytes) FROM peaks WHERE name = ?1", NULL, "t", name);
    uint64_t peak = st && store_step(s, st, NULL) == 1 ? store_u64(st, 0) : 0;
    store_reset(st);
    return peak;
}

int store_count_up(struct store *s, const char *key, double by, struct err *err)
{
    int r = store_begin(s, err);
    if (r < 0)
        return r;
    r = store_run(s,
                  "INSERT INTO counters (key, value) VALUES (?1, ?2)"
                  " ON CONFLICT (key) DO UPDATE SET value = value + ?2",
                  err, "td", key, by);
    return store_end(s, r, err);
}

int store_counters(struct store *s, struct store_counter **ret, size_t *ret_count, struct err *err)
{
    struct buf list = {0};
    sqlite3_stmt *st = store_bind(s, "SELECT key, value FROM counters ORDER BY key", err, "");
    int r = st ? 0 : store_fail(s, NULL);
    while (r == 0 && (r = store_step(s, st, err)) == 1) {
        struct store_counter c = {.value = sqlite3_column_double(st, 1)};
        const char *key = (const char *)sqlite3_column_text(st, 0);
        snprintf(c.key, sizeof c.key, "%s", key ? key : "");
        buf_add(&list, &c, sizeof c);
        r = list.failed ? err_set(err, -ENOMEM, "out of memory") : 0;
    }
    store_reset(st);
    if (r < 0) {
        buf_fini(&list);
        return r;
    }
    *ret_count = list.len / sizeof **ret;
    *ret = (struct store_counter *)(void *)list.data;
    return 0;
}

int store_counter(struct store *s, const char *key, double *ret, struct err *err)
{
    sqlite3_stmt *st = store_bind(s, "SELECT value FROM counters WHERE key = ?1", err, "t", key);
    if (!st)
        return store_fail(s, NULL);
    int r = store_step(s, st, err);
    *ret = r == 1 ? sqlite3_column_double(st, 0) : 0;
    store_reset(st);
    return r < 0 ? r : 0;
}

int store_remove(struct store *s, int64_t id, struct err *err)
{
    struct store_job job = {0};
    int r = store_get(s, id, &job, err);
    enum job_state state = job.state;
    if (r == 0)
        r = store_begin(s, err);
    if (r < 0)
        return r;
    r = store_run(s, "DELETE FROM jobs WHERE id = ?1", err, "i", id);
    if (r == 0)
        r = store_run(s, "DELETE FROM changes WHERE job = ?1", err, "i", id);
    s->counts[state]--;
    return store_end(s, r, err);
}
