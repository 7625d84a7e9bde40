/* The rows of the store: jobs and the changes of their states. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/json.h"
#include "server/jobs/store_private.h"

static const char *text_at(sqlite3_stmt *st, int column)
{
    return (const char *)sqlite3_column_text(st, column);
}

/* The columns in the order of SQL_GET and of the lists. */
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

static int no_such(int64_t id, struct err *err)
{
    return err_set(err, -ENOENT, "there is no job %" PRId64, id);
}

static int note(struct store *s, int64_t id, uint64_t at_ns, enum job_state state,
                const char *reason, struct err *err)
{
    sqlite3_stmt *st = store_statement(s, SQL_NOTE, err);
    if (!st)
        return store_fail(s, NULL);
    sqlite3_bind_int64(st, 1, id);
    sqlite3_bind_int64(st, 2, (sqlite3_int64)at_ns);
    sqlite3_bind_int(st, 3, (int)state);
    store_bind_text(st, 4, reason);
    int rc = store_do(s, st, err);
    st = rc == 0 ? store_statement(s, SQL_NOTE_TRIM, err) : NULL;
    if (!st)
        return rc < 0 ? rc : store_fail(s, NULL);
    sqlite3_bind_int64(st, 1, id);
    return store_do(s, st, err);
}

static int insert(struct store *s, const struct store_job *job, int64_t id, struct err *err)
{
    sqlite3_stmt *st = store_statement(s, SQL_ADD, err);
    if (!st)
        return store_fail(s, NULL);
    sqlite3_bind_int(st, 1, (int)job->state);
    sqlite3_bind_int(st, 2, job->priority);
    store_bind_text(st, 3, job->name);
    store_bind_ns(st, 4, (uint64_t)job->rerun_of);
    store_bind_ns(st, 5, job->memory_bytes);
    store_bind_text(st, 6, job->memory_from);
    store_bind_text(st, 7, job->gpus);
    store_bind_text(st, 8, job->run_dir);
    sqlite3_bind_int64(st, 9, (sqlite3_int64)job->submitted_ns);
    store_bind_ns(st, 10, job->started_ns);
    store_bind_ns(st, 11, job->ended_ns);
    store_bind_text(st, 12, job->reason);
    store_bind_text(st, 13, job->request);
    store_bind_text(st, 14, job->end);
    sqlite3_bind_int64(st, 15, id);
    store_bind_text(st, 16, job->folder_id);
    store_bind_ns(st, 17, job->ended_age_ns);
    return store_do(s, st, err);
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
    struct store_turn turn;
    const int64_t id = store_next_id(s);
    if ((unsigned)job->state >= JOB_STATES)
        return err_set(err, -EINVAL, "%d is not a state of a job", (int)job->state);
    int rc = store_turn_begin(s, &turn, err);
    if (rc < 0)
        return rc;
    rc = insert(s, job, id, err);
    if (rc == 0) {
        s->counts[job->state]++;
        rc = note(s, id, job->ended_ns ? job->ended_ns : job->submitted_ns, job->state, job->reason,
                  err);
    }
    rc = store_turn_end(s, &turn, rc, err);
    if (rc == 0)
        *ret_id = s->last_id = id;
    return rc;
}

int store_get(struct store *s, int64_t id, struct store_job *ret, struct err *err)
{
    sqlite3_stmt *st = store_statement(s, SQL_GET, err);
    if (!st)
        return store_fail(s, NULL);
    sqlite3_bind_int64(st, 1, id);
    int rc = store_step(s, st, err);
    if (rc == 1) {
        read_row(st, ret);
        s->pending = st;
        return 0;
    }
    store_reset(st);
    return rc < 0 ? rc : no_such(id, err);
}

static bool is_begun(enum job_state state)
{
    return state == JOB_RUNNING || state == JOB_CHECKPOINTING || state == JOB_STOPPING;
}

static int update(struct store *s, int64_t id, const struct store_change *c, struct err *err)
{
    sqlite3_stmt *st = store_statement(s, SQL_CHANGE, err);
    if (!st)
        return store_fail(s, NULL);
    sqlite3_bind_int64(st, 1, id);
    sqlite3_bind_int(st, 2, (int)c->state);
    store_bind_text(st, 3, c->reason);
    store_bind_text(st, 4, c->run_dir);
    store_bind_text(st, 5, c->gpus);
    store_bind_text(st, 6, c->memory_from);
    store_bind_ns(st, 7, c->memory_bytes);
    store_bind_text(st, 8, c->end);
    store_bind_ns(st, 9, c->started_ns ? c->started_ns : is_begun(c->state) ? c->at_ns : 0);
    store_bind_ns(st, 10, job_state_is_final(c->state) ? c->at_ns : 0);
    store_bind_text(st, 11, c->folder_id);
    store_bind_ns(st, 12, job_state_is_final(c->state) ? c->ended_age_ns : 0);
    return store_do(s, st, err);
}

int store_change(struct store *s, int64_t id, const struct store_change *change, struct err *err)
{
    struct store_job job = {0};
    struct store_turn turn;
    int rc = store_get(s, id, &job, err);
    if (rc < 0)
        return rc;
    if (!job_state_may_follow(job.state, change->state))
        return err_set(err, -EINVAL, "job %" PRId64 " is %s and cannot become %s", id,
                       job_state_word(job.state), job_state_word(change->state));
    rc = store_turn_begin(s, &turn, err);
    if (rc < 0)
        return rc;
    rc = update(s, id, change, err);
    if (rc == 0)
        rc = note(s, id, change->at_ns, change->state, change->reason, err);
    s->counts[job.state]--;
    s->counts[change->state]++;
    return store_turn_end(s, &turn, rc, err);
}

/* ---- lists ---- */

/* Which columns decide where to look: the few active ones, those of one state, those of a name. */
enum list_kind { LIST_ALL, LIST_ACTIVE, LIST_STATE, LIST_NAME };

static enum list_kind kind_of(const struct store_filter *f)
{
    enum { ACTIVE = (1 << JOB_SUCCEEDED) - 1, ALL = (1 << JOB_STATES) - 1 };
    unsigned states = f->states & ALL;
    if (f->name)
        return LIST_NAME;
    if (states && __builtin_popcount(states) == 1)
        return LIST_STATE;
    return states && !(states & ~(unsigned)ACTIVE) ? LIST_ACTIVE : LIST_ALL;
}

static sqlite3_stmt *prepare_list(struct store *s, enum list_kind kind, bool oldest_first,
                                  struct err *err)
{
    static const char *const where[] = {
        [LIST_ALL] = "(?1 >> state) & 1",
        [LIST_ACTIVE] = "state < 5 AND (?1 >> state) & 1",
        [LIST_STATE] = "state = ?2",
        [LIST_NAME] = "name = ?3 AND (?1 >> state) & 1",
    };
    char sql[512];
    snprintf(
        sql, sizeof sql,
        "SELECT id, state, priority, name, rerun_of, memory_bytes, memory_from, gpus, run_dir,"
        " submitted_ns, started_ns, ended_ns, reason, request, \"end\", folder_id, ended_age_ns"
        " FROM jobs"
        " WHERE %s AND id < ?4 ORDER BY id %s LIMIT ?5",
        where[kind], oldest_first ? "" : "DESC");
    return store_prepare(s, &s->lists[2 * kind + oldest_first], sql, err);
}

int store_list(struct store *s, const struct store_filter *f, store_job_fn *fn, void *user,
               struct err *err)
{
    unsigned states = f->states ? f->states : ~0u;
    enum list_kind kind = kind_of(f);
    sqlite3_stmt *st = prepare_list(s, kind, f->oldest_first, err);
    int rc;
    if (!st)
        return store_fail(s, NULL);
    if (kind == LIST_STATE)
        sqlite3_bind_int(st, 2, __builtin_ctz(states));
    else
        sqlite3_bind_int64(st, 1, states);
    if (kind == LIST_NAME)
        store_bind_text(st, 3, f->name);
    sqlite3_bind_int64(st, 4, f->before > 0 ? f->before : INT64_MAX);
    sqlite3_bind_int64(st, 5, f->limit ? (sqlite3_int64)f->limit : -1);
    while ((rc = store_step(s, st, err)) == 1) {
        struct store_job job;
        read_row(st, &job);
        if (fn(user, &job) != 0) {
            rc = 0;
            break;
        }
    }
    store_reset(st);
    return rc;
}

int store_changes(struct store *s, int64_t id, json_t **ret, struct err *err)
{
    sqlite3_stmt *st = store_statement(s, SQL_CHANGES, err);
    json_t *list = json_array();
    int rc = !list ? err_set(err, -ENOMEM, "out of memory") : st ? 0 : store_fail(s, NULL);
    if (st)
        sqlite3_bind_int64(st, 1, id);
    while (rc == 0 && (rc = store_step(s, st, err)) == 1) {
        json_t *entry = json_pack("{s:o, s:s, s:o}", "t_s", json_seconds(store_u64(st, 0)), "state",
                                  job_state_word((enum job_state)sqlite3_column_int(st, 1)),
                                  "reason", json_text0(text_at(st, 2)));
        rc = json_array_append_new(list, entry) < 0 ? err_set(err, -ENOMEM, "out of memory") : 0;
    }
    store_reset(st);
    if (rc < 0) {
        json_decref(list);
        return rc;
    }
    *ret = list;
    return 0;
}
