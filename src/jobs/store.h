/* What was accepted, durably: SQLite (WAL, synchronous FULL, STRICT tables), one connection, in the
 * server. When a call that changes something returns 0 it is on disk. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "jobs/state.h"

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
    const char *gpus;    /* "0,1"; NULL */
    const char *run_dir; /* name of the folder below runs/; NULL: not started, or removed */
    uint64_t submitted_ns, started_ns, ended_ns; /* wall clock; 0: not yet */
    const char *end; /* JSON of what is told of an ended job (status, cause, memory, verdict, …) */
};

/* Creates or opens PATH, migrates it by user_version; -EBUSY where another server has it; a newer
 * version or a damaged file is refused with a sentence. */
int store_open(const char *path, struct store **ret, struct err *err);
void store_close(struct store *store);

/* Accepts a job in STATE (queued, or starting where it can start at once: one commit). */
int store_add(struct store *store, const struct store_job *job, int64_t *ret_id, struct err *err);

/* What a change brings with it; zero and NULL leave things as they are. */
struct store_change {
    enum job_state state;
    const char *reason;
    uint64_t at_ns;
    const char *run_dir, *gpus, *memory_from, *end;
    uint64_t memory_bytes;
};
/* State, its entry in the list of changes, and the rest, in one commit. -ENOENT; -EINVAL where
 * STATE may not follow. */
int store_change(struct store *store, int64_t id, const struct store_change *change,
                 struct err *err);
int store_get(struct store *store, int64_t id, struct store_job *ret, struct err *err);

/* A set of states as bits: 1 << JOB_QUEUED | … */
struct store_filter {
    unsigned states; /* 0: all */
    const char *name;
    int64_t before; /* ids below; 0: from the newest */
    unsigned limit;
    bool oldest_first;
};
/* FN returns 0 to go on. It must not call the store. */
typedef int store_job_fn(void *user, const struct store_job *job);
int store_list(struct store *store, const struct store_filter *filter, store_job_fn *fn, void *user,
               struct err *err);
/* The changes of one job, oldest first, as the API has them: [{t_s, state, reason}]. */
int store_changes(struct store *store, int64_t id, json_t **ret, struct err *err);
int store_count(struct store *store, uint64_t ret[JOB_STATES], struct err *err);

/* Learned peaks: what runs of NAME needed. The largest of the last five. */
int store_learn(struct store *store, const char *name, uint64_t peak_bytes, uint64_t at_ns,
                struct err *err);
uint64_t store_learned(struct store *store, const char *name); /* 0: nothing known */

/* Counters that outlive a restart (metrics): returns the new value. */
int store_count_up(struct store *store, const char *key, double by, struct err *err);
int store_counters(struct store *store, json_t **ret, struct err *err); /* {key: value} */

/* The run folder is gone / the row goes. */
int store_forget_folder(struct store *store, int64_t id, struct err *err);
int store_remove(struct store *store, int64_t id, struct err *err);
