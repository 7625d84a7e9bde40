/* What was accepted, durably: SQLite (WAL, synchronous FULL, STRICT tables), one connection, in the
 * server. When a call that changes something returns 0 it is on disk; when it fails nothing has
 * changed, and the store can be used on (after a full disk has room again, for instance).
 *
 * Failures come with a sentence: -ENOSPC no room, -EIO the disk, -EBADMSG the file is damaged,
 * -ENOMEM. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/jobs/state.h"

struct err;
struct store;

/* One row. Pointers are valid until the next call on the store, unless it is said otherwise. */
struct store_job {
    int64_t id;
    enum job_state state;
    const char *reason;  /* or NULL */
    const char *request; /* JSON, normalised (jobs/spec.h) */
    const char *name;
    int priority;
    int64_t rerun_of; /* 0: none */
    uint64_t memory_bytes;
    const char *memory_from;
    const char *gpus;      /* "0,1"; NULL */
    const char *run_dir;   /* name of the folder below runs/; NULL: not started, or there is none */
    const char *folder_id; /* what that is signed with; NULL: made by an ebb that did not sign */
    uint64_t submitted_ns, started_ns, ended_ns; /* wall clock; 0: not yet */
    uint64_t ended_age_ns; /* how long servers had run with this store when it ended */
    const char *end; /* JSON of the facts of an ended job (status, cause, memory, verdict, …) */
};

/* Creates or opens PATH, migrates it by user_version; -EBUSY where another server has it; a newer
 * version (-ENOTSUP), a damaged or foreign file (-EBADMSG) and one on a network file system
 * (-EREMOTE: its locks cannot be relied on) are refused with a sentence. Nothing else in this
 * process may open and close the file: that would drop the lock. */
int store_open(const char *path, struct store **ret, struct err *err);
void store_close(struct store *store); /* NULL is fine */

/* Several calls in one commit, each of them as it is alone: between these two a call that fails
 * changes nothing, the others hold, and nothing is on disk before store_commit has returned 0.
 * Where that fails, none of them has happened. */
int store_begin(struct store *store, struct err *err);
int store_commit(struct store *store, struct err *err);
void store_cancel(struct store *store);

/* Ids are never used twice: each is one above the largest that this store, or a caller of
 * store_ids_above, has known. */
int64_t store_next_id(const struct store *store); /* what store_add will give */
void store_ids_above(struct store *store, int64_t id);
/* Accepts a job in STATE (queued, or starting where it can start at once: one commit; another state
 * for one that is taken over as history). Its id is not read. */
int store_add(struct store *store, const struct store_job *job, int64_t *ret_id, struct err *err);

/* What a change brings with it; zero and NULL leave things as they are. */
struct store_change {
    enum job_state state;
    const char *reason; /* that of the state: NULL takes away what was there */
    uint64_t at_ns;
    uint64_t started_ns; /* 0: at_ns, where it is the first of running, checkpointing, stopping */
    const char *run_dir; /* "": there is none */
    const char *folder_id, *gpus, *memory_from, *end;
    uint64_t memory_bytes;
    uint64_t ended_age_ns; /* of a final state */
};
/* State, its entry in the list of changes, and the rest, in one commit. Back to queued takes away
 * run_dir, folder_id, gpus and started_ns. -ENOENT; -EINVAL where STATE may not follow. */
int store_change(struct store *store, int64_t id, const struct store_change *change,
                 struct err *err);
int store_get(struct store *store, int64_t id, struct store_job *ret, struct err *err);

/* A set of states as bits: 1 << JOB_QUEUED | … */
struct store_filter {
    unsigned states; /* 0: all */
    const char *name;
    int64_t before; /* ids below; 0: all */
    unsigned limit; /* 0: none */
    bool oldest_first;
};
/* FN returns 0 to go on. It must not call the store. */
typedef int store_job_fn(void *user, const struct store_job *job);
int store_list(struct store *store, const struct store_filter *filter, store_job_fn *fn, void *user,
               struct err *err);
/* The changes of one job, oldest first, as the API has them: [{t_s, state, reason}]. Of very many
 * the first and the latest are kept. */
int store_changes(struct store *store, int64_t id, json_t **ret, struct err *err);
void store_count(const struct store *store, uint64_t ret[JOB_STATES]); /* from memory */

/* Learned peaks: what runs of NAME needed. The largest of the last five. */
int store_learn(struct store *store, const char *name, uint64_t peak_bytes, uint64_t at_ns,
                struct err *err);
uint64_t store_learned(struct store *store, const char *name); /* 0: nothing known */

/* Counters that outlive a restart (metrics). KEY is one of a few words of ours, never from outside.
 */
int store_count_up(struct store *store, const char *key, double by, struct err *err);
struct store_counter {
    char key[48];
    double value;
};
/* All of them: *RET is the caller's to free. */
int store_counters(struct store *store, struct store_counter **ret, size_t *ret_count,
                   struct err *err);
int store_counter(struct store *store, const char *key, double *ret, struct err *err); /* 0: none */

/* The row goes, with its changes. -ENOENT. */
int store_remove(struct store *store, int64_t id, struct err *err);
