/* Runs jobs on this machine: `ebb run --detached` in its own process tree, which outlives the
 * server.
 *
 * No job runs twice and none is lost, whatever process is killed at whatever moment:
 *   - the server creates STATE/locks/ID and locks it (flock); `ebb run`, the job's sentinel and its
 *     supervisor inherit the lock, which is held while one of them is alive;
 *   - `ebb run` creates the run folder, which must not exist yet, and signs it before it starts
 *     anything: of two starts one fails, and no other folder is mistaken for the job's;
 *   - run.json in the folder says how the job ended.
 * So after a restart of the server: lock held: the job runs; no run folder: it was never started;
 * run.json says "ended": it has ended; else it is lost, and `ebb sweep` kills what is left of it.
 */
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
    EXECUTOR_ENDED, /* run.json contains the end */
    EXECUTOR_LOST
};

struct executor_run; /* a job that has been started and has not ended */

/* The run folder of a job. It belongs to the job only if it is signed with ID. */
struct executor_folder {
    const char *name; /* name within runs/ */
    const char *id;   /* "": the folder must not be signed, because an old ebb created it */
};

/* Called on the loop in this order: started (unless the job could not be started), news…, over. The
 * run is freed before `over` is called. */
struct executor_callbacks {
    void (*started)(void *user, int64_t id);
    /* a message from the supervisor (docs/reference/api.md); borrowed */
    void (*news)(void *user, int64_t id, json_t *message);
    /* No process of the job is left. RUN_JSON is borrowed; NULL: there is none. NO_START is the
     * reason why the job could not be started, or NULL. */
    void (*over)(void *user, int64_t id, const json_t *run_json, const char *no_start);
    void *user;
};

struct executor {
    struct loop *loop;
    const char *program;   /* path of ebb itself: /proc/self/exe, resolved at the start */
    int locks_fd, runs_fd; /* open folders */
    const char *runs_path; /* absolute */
    uint64_t files_max;    /* soft limit of open files for jobs; 0: the server's own */
    /* used if a request does not set them; 0: default of `ebb run` */
    uint64_t interval_ns, log_bytes;
    uint64_t force_ns; /* from the end of a cancel's grace period to killing the supervisor */
    struct executor_callbacks callbacks;
};

/* Starts a job. Errors after this call are reported by the callback `over`. */
int executor_start(struct executor *x, int64_t id, const struct job_spec *spec,
                   const struct executor_folder *folder, uint64_t gpus, struct executor_run **ret,
                   struct err *err);
/* Finds out what became of a job that an earlier server started. EXECUTOR_ALIVE: *RET is the run.
 * EXECUTOR_ENDED: *ret_json is run.json, which the caller owns. */
int executor_find(struct executor *x, int64_t id, const struct executor_folder *folder,
                  enum executor_found *found, struct executor_run **ret, json_t **ret_json,
                  struct err *err);
/* Sends a request to the supervisor. -ENOTCONN: the supervisor cannot be reached; a cancel is then
 * repeated until it is. */
int executor_cancel(struct executor_run *run, const char *reason, uint64_t grace_ns);
/* Repeats a cancel that the supervisor has refused, after two seconds. */
void executor_cancel_again(struct executor_run *run);
int executor_checkpoint(struct executor_run *run);
/* Opens the job's run folder: an fd; -ENOENT: it has none; -errno: unknown. */
int executor_open_folder(const struct executor *x, const struct executor_folder *folder);
/* 1: a process holds the lock of job ID; 0: no process does; -errno. */
int executor_is_held(const struct executor *x, int64_t id);
/* To be called when the end of the job is stored: removes its lock. */
void executor_forget(struct executor *x, int64_t id);
/* Frees RUN; the job continues to run. */
void executor_release(struct executor_run *run);
