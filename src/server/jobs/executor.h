/* Runs jobs on this machine: `ebb run --detached` in its own process tree, which outlives the
 * server.
 *
 * No job runs twice and none is lost, whatever process is killed at whatever moment:
 *   - the server creates STATE/locks/ID and locks it (flock); `ebb run`, the job's sentinel and its
 *     supervisor inherit the lock, which is held while one of them is alive;
 *   - `ebb run` creates the run folder, which must not exist yet, and signs it before it starts
 *     anything: of two starts one fails, and no other folder is mistaken for the job's;
 *   - run.json in the folder says how the job ended.
 * So after a restart the server knows: if the lock is held, the job runs; if there is no run
 * folder, it was never started; if run.json says "ended", it has ended; otherwise it is lost, and
 * `ebb sweep` kills its remaining processes. */
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
    EXECUTOR_ENDED, /* run.json contains the end of the job */
    EXECUTOR_LOST
};

struct executor_run; /* a job that was started and has not ended */

/* The run folder of a job. It belongs to the job only if it is signed with ID. */
struct executor_folder {
    const char *name; /* name within runs/ */
    /* signature of the folder; "" if it must not be signed, because an old ebb created it */
    const char *id;
};

/* Callbacks from the event loop, in this order: started (unless the job could not be started),
 * news…, over. The run is freed before `over` is called. */
struct executor_callbacks {
    void (*started)(void *user, int64_t id);
    /* a message from the supervisor (docs/reference/api.md), not owned by the callee */
    void (*news)(void *user, int64_t id, json_t *message);
    /* No process of the job is left. RUN_JSON is not owned by the callee, and is NULL if there is
     * no run.json. NO_START is the reason why the job could not be started, or NULL. */
    void (*over)(void *user, int64_t id, const json_t *run_json, const char *no_start);
    void *user;
};

struct executor {
    struct loop *loop;
    const char *program;   /* path of ebb itself: /proc/self/exe, resolved at the start */
    int locks_fd, runs_fd; /* open folders */
    const char *runs_path; /* absolute */
    uint64_t files_max;    /* soft limit of open files for jobs; 0 means the server's own */
    /* values for requests that do not set them; 0 means the default of `ebb run` */
    uint64_t interval_ns, log_bytes;
    /* time from the end of a cancel's grace period until the supervisor is killed */
    uint64_t force_ns;
    struct executor_callbacks callbacks;
};

/* Starts a job. Errors after this call are reported by the callback `over`. */
int executor_start(struct executor *x, int64_t id, const struct job_spec *spec,
                   const struct executor_folder *folder, uint64_t gpus, struct executor_run **ret,
                   struct err *err);
/* Finds out what happened to a job that an earlier server started. For EXECUTOR_ALIVE, *RET is the
 * run. For EXECUTOR_ENDED, *ret_json is run.json, which the caller owns. */
int executor_find(struct executor *x, int64_t id, const struct executor_folder *folder,
                  enum executor_found *found, struct executor_run **ret, json_t **ret_json,
                  struct err *err);
/* Sends a request to the supervisor. Returns -ENOTCONN if the supervisor cannot be reached. A
 * cancel request is then repeated until the supervisor can be reached. */
int executor_cancel(struct executor_run *run, const char *reason, uint64_t grace_ns);
/* Repeats, after two seconds, a cancel that the supervisor has refused. */
void executor_cancel_again(struct executor_run *run);
int executor_checkpoint(struct executor_run *run);
/* Opens the job's run folder. Returns an fd; -ENOENT if there is none; or another -errno. */
int executor_open_folder(const struct executor *x, const struct executor_folder *folder);
/* Returns 1 if a process holds the lock of job ID, 0 if none does, or -errno. */
int executor_is_held(const struct executor *x, int64_t id);
/* Call this when the end of the job is stored: removes its lock. */
void executor_forget(struct executor *x, int64_t id);
/* Frees RUN. The job continues to run. */
void executor_release(struct executor_run *run);
