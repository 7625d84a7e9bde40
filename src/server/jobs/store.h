/* The job store: SQLite (WAL, synchronous FULL, STRICT tables) with one connection. When a call
 * that changes something returns 0, the change is on disk. When it fails, nothing has changed, and
 * the store remains usable, for instance once a full disk has space again. Failures set an error
 * message and return -ENOSPC, -EIO, -EBADMSG (the file is damaged) or -ENOMEM. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/jobs/state.h"

struct err;
struct store;

/* One row of the store. Pointers are valid until the next call on the store. */
struct store_job {
    int64_t id;
    enum job_state state;
    const char *reason;  /* may be NULL */
    const char *request; /* JSON, normalised (jobs/spec.h) */
    const char *name;
    int priority;
    int64_t rerun_of; /* id of the job that this one repeats; 0 if it is not a rerun */
    uint64_t memory_bytes;
    const char *memory_from;
    const char *gpus;    /* "0,1"; may be NULL */
    const char *run_dir; /* name of the folder in runs/, or NULL */
    /* signature of the folder; NULL if an old ebb created the folder without a signature */
    const char *folder_id;
    uint64_t submitted_ns, started_ns, ended_ns; /* wall-clock times; 0 if not reached yet */
    uint64_t ended_age_ns; /* age of the store when the job ended (jobs_age_ns) */
    const char *end;       /* facts of an ended job as JSON (status, cause, memory, verdict, …) */
};

/* Creates or opens PATH, and migrates it according to user_version. Returns 0; -EBUSY if another
 * server uses it; -ENOTSUP for a newer version; -EBADMSG if it is damaged or not a job store;
 * -EREMOTE on a network file system, whose locks are not reliable. No other code in this process
 * may open the file, because closing the file there would drop the lock. */
int store_open(const char *path, struct store **ret, struct err *err);
void store_close(struct store *store); /* accepts NULL */

/* store_begin and store_end put the calls between them into one commit. Transactions nest. The
 * outermost store_end commits, or rolls everything back if any call in between failed. RESULT is
 * the result of the calls so far. store_end returns RESULT, or the error of the commit. */
int store_begin(struct store *store, struct err *err);
int store_end(struct store *store, int result, struct err *err);

/* Ids are never reused: a new id is larger than every id that this store has ever contained, and
 * larger than every id passed to store_ids_above. */
int64_t store_next_id(const struct store *store); /* the id that store_add will use next */
void store_ids_above(struct store *store, int64_t id);
/* Adds a job that is queued or, if imported, in a final state. Ignores job->id. */
int store_add(struct store *store, const struct store_job *job, int64_t *ret_id, struct err *err);

/* A change of state. If a member is 0 or NULL, its column stays unchanged. */
struct store_change {
    enum job_state state;
    const char *reason; /* reason of the state, or NULL */
    uint64_t at_ns;
    /* start time; 0 means the time of the first change to running, checkpointing or stopping */
    uint64_t started_ns;
    const char *run_dir; /* name of the run folder; "" clears the column */
    const char *folder_id, *gpus, *memory_from, *end;
    uint64_t memory_bytes;
    uint64_t ended_age_ns; /* age of the store at the end of the job; only for a final state */
};
/* Changes the row and appends to the list of changes. A return to queued clears run_dir, folder_id,
 * gpus and started_ns. Returns 0, -ENOENT, or -EINVAL if STATE cannot follow the current state. */
int store_change(struct store *store, int64_t id, const struct store_change *change,
                 struct err *err);
int store_get(struct store *store, int64_t id, struct store_job *ret, struct err *err);

struct store_filter {
    unsigned states; /* bits of the states to list, 1 << JOB_QUEUED | …; 0 means all */
    const char *name;
    int64_t before; /* list only jobs whose ids are below this one; 0 means all */
    unsigned limit; /* 0: no limit */
    bool oldest_first;
    /* list only jobs that ended when the store was at most this old; 0 means all */
    uint64_t ended_by_age_ns;
};
/* Called for each row. Returns 0 to continue. It must not call the store. */
typedef int store_job_fn(void *user, const struct store_job *job);
int store_list(struct store *store, const struct store_filter *filter, store_job_fn *fn, void *user,
               struct err *err);
/* Gets the changes of one job, oldest first, as in the API: [{t_s, state, reason}]. Only the first
 * 100 and the last 1000 are stored. */
int store_changes(struct store *store, int64_t id, json_t **ret, struct err *err);
/* Gets the number of jobs in each state. The numbers are kept in memory. */
void store_count(const struct store *store, uint64_t ret[JOB_STATES]);

/* Learned memory: the largest peak of the last five runs of jobs named NAME. */
int store_learn(struct store *store, const char *name, uint64_t peak_bytes, uint64_t at_ns,
                struct err *err);
uint64_t store_learned(struct store *store, const char *name); /* 0: unknown */

/* Counters that survive a restart (metrics). KEY is always a constant of ebb, never user input. */
int store_count_up(struct store *store, const char *key, double by, struct err *err);
struct store_counter {
    char key[48];
    double value;
};
/* Gets all counters. The caller frees *RET. */
int store_counters(struct store *store, struct store_counter **ret, size_t *ret_count,
                   struct err *err);
/* *RET is 0 if there is no such counter */
int store_counter(struct store *store, const char *key, double *ret, struct err *err);

/* Removes the row and its changes. Returns 0, or -ENOENT if there is no such row. */
int store_remove(struct store *store, int64_t id, struct err *err);
