/* Where jobs run. One kind for now, on this machine: `ebb run --detached` in a process tree of its
 * own, which outlives the server. Another (a cluster's) has the same four functions.
 *
 * Nothing is run twice and nothing is lost, whatever is killed when:
 *   - the server makes STATE/locks/ID and locks it (flock); the child inherits the lock, and with
 * it the job's sentinel and supervisor: while one of them lives, the lock is held;
 *   - `ebb run` makes the run folder, which must not exist, and signs it before anything is
 *     started: of two starts one fails, and nobody else's folder is taken for the job's;
 *   - run.json in it says how the job ended.
 * So after a restart: lock held: it runs; not held and no folder: it never started; not held and
 * run.json says "ended": that; else it is lost, and `ebb sweep` ends what may be left of it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/jobs/spec.h"

struct err;
struct loop;

enum executor_found {
    EXECUTOR_NEVER_STARTED,
    EXECUTOR_ALIVE,
    EXECUTOR_ENDED, /* run.json says how */
    EXECUTOR_LOST
};

struct executor_run; /* one job under way */

/* The run folder of a job: belongs to it only if it is signed with its id. */
struct executor_folder {
    const char *name; /* below runs/ */
    const char *id;   /* "": made by an ebb that did not sign; then unsigned ones are meant */
};

/* On the loop, in this order: started (or not: then over follows with no_start), news…, over. With
 * over the run is gone. */
struct executor_callbacks {
    void (*started)(void *user, int64_t id);
    /* a message of the supervisor's (docs/api.md); borrowed */
    void (*news)(void *user, int64_t id, json_t *message);
    /* nothing of the job is left. RUN_JSON is borrowed, NULL where there is none; NO_START: why it
     * could not be started, or NULL */
    void (*over)(void *user, int64_t id, const json_t *run_json, const char *no_start);
    void *user;
};

struct executor {
    struct loop *loop;
    const char *program;             /* ebb itself: /proc/self/exe resolved at start */
    int locks_fd, runs_fd;           /* folders */
    const char *runs_path;           /* absolute */
    uint64_t files_max;              /* soft limit of open files for what is started; 0: our own */
    uint64_t interval_ns, log_bytes; /* for requests without; 0: as `ebb run` does */
    uint64_t force_ns;               /* beyond a cancel's grace, before the supervisor is killed */
    struct executor_callbacks callbacks;
};

/* Begins to start it; trouble later comes as over. */
int executor_start(struct executor *x, int64_t id, const struct job_spec *spec,
                   const struct executor_folder *folder, const int *gpus, size_t gpu_count,
                   struct executor_run **ret, struct err *err);
/* What became of a job that another server started. With EXECUTOR_ALIVE *RET is the run, taken
 * over; with _ENDED *ret_json is run.json, the caller's. */
int executor_find(struct executor *x, int64_t id, const struct executor_folder *folder,
                  enum executor_found *found, struct executor_run **ret, json_t **ret_json,
                  struct err *err);
/* Both by the supervisor. -ENOTCONN: it cannot be reached now (a cancel is repeated until it is).
 */
int executor_cancel(struct executor_run *run, const char *reason, uint64_t grace_ns);
/* The supervisor has refused a cancel: it is sent again, a little later. */
void executor_cancel_again(struct executor_run *run);
int executor_checkpoint(struct executor_run *run);
/* The job's own folder: an fd, -ENOENT where it has none, -errno where nobody can say. */
int executor_open_folder(const struct executor *x, const struct executor_folder *folder);
/* 1 a process of some job holds the lock of ID, 0 none does, -errno. */
int executor_is_held(const struct executor *x, int64_t id);
/* The job is accounted for, durably: its lock goes. */
void executor_forget(struct executor *x, int64_t id);
/* Lets go: the job runs on. */
void executor_release(struct executor_run *run);
