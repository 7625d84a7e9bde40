/* What the store keeps besides jobs: learned peaks and counters; and what it lets go of. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/err.h"
#include "server/jobs/store_private.h"

void store_count(const struct store *s, uint64_t ret[JOB_STATES])
{
    memcpy(ret, s->counts, sizeof s->counts);
}

static int trim_peaks(struct store *s, const char *name, struct err *err)
{
    sqlite3_stmt *st = store_statement(s, SQL_LEARN_TRIM_NAME, err);
    if (!st)
        return store_fail(s, NULL);
    store_bind_text(st, 1, name);
    int rc = store_do(s, st, err);
    st = rc == 0 ? store_statement(s, SQL_LEARN_TRIM, err) : NULL;
    return rc < 0 ? rc : st ? store_do(s, st, err) : store_fail(s, NULL);
}

int store_learn(struct store *s, const char *name, uint64_t peak_bytes, uint64_t at_ns,
                struct err *err)
{
    struct store_turn turn;
    int rc = store_turn_begin(s, &turn, err);
    if (rc < 0)
        return rc;
    sqlite3_stmt *st = store_statement(s, SQL_LEARN, err);
    if (st) {
        store_bind_text(st, 1, name);
        sqlite3_bind_int64(st, 2, (sqlite3_int64)at_ns);
        sqlite3_bind_int64(st, 3, (sqlite3_int64)(peak_bytes > INT64_MAX ? INT64_MAX : peak_bytes));
        rc = store_do(s, st, err);
    } else {
        rc = store_fail(s, NULL);
    }
    if (rc == 0)
        rc = trim_peaks(s, name, err);
    return store_turn_end(s, &turn, rc, err);
}

uint64_t store_learned(struct store *s, const char *name)
{
    uint64_t peak = 0;
    sqlite3_stmt *st = store_statement(s, SQL_LEARNED, NULL);
    if (!st)
        return 0;
    store_bind_text(st, 1, name);
    if (store_step(s, st, NULL) == 1)
        peak = store_u64(st, 0);
    store_reset(st);
    return peak;
}

int store_count_up(struct store *s, const char *key, double by, struct err *err)
{
    struct store_turn turn;
    int rc = store_turn_begin(s, &turn, err);
    if (rc < 0)
        return rc;
    sqlite3_stmt *st = store_statement(s, SQL_COUNT_UP, err);
    if (st) {
        store_bind_text(st, 1, key);
        sqlite3_bind_double(st, 2, by);
        rc = store_do(s, st, err);
    } else {
        rc = store_fail(s, NULL);
    }
    return store_turn_end(s, &turn, rc, err);
}

int store_counters(struct store *s, struct store_counter **ret, size_t *ret_count, struct err *err)
{
    struct buf list = {0};
    sqlite3_stmt *st = store_statement(s, SQL_COUNTERS, err);
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
    sqlite3_stmt *st = store_statement(s, SQL_COUNTER, err);
    if (!st)
        return store_fail(s, NULL);
    store_bind_text(st, 1, key);
    int r = store_step(s, st, err);
    *ret = r == 1 ? sqlite3_column_double(st, 0) : 0;
    store_reset(st);
    return r < 0 ? r : 0;
}

/* A statement whose only value is a job. */
static int of_job(struct store *s, enum store_statement which, int64_t id, struct err *err)
{
    sqlite3_stmt *st = store_statement(s, which, err);
    if (!st)
        return store_fail(s, NULL);
    sqlite3_bind_int64(st, 1, id);
    return store_do(s, st, err);
}

int store_remove(struct store *s, int64_t id, struct err *err)
{
    struct store_job job = {0};
    struct store_turn turn;
    int rc = store_get(s, id, &job, err);
    enum job_state state = job.state;
    if (rc == 0)
        rc = store_turn_begin(s, &turn, err);
    if (rc < 0)
        return rc;
    rc = of_job(s, SQL_REMOVE, id, err);
    if (rc == 0)
        rc = of_job(s, SQL_REMOVE_CHANGES, id, err);
    s->counts[state]--;
    return store_turn_end(s, &turn, rc, err);
}
