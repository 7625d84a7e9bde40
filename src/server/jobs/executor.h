/* Runs jobs: on this machine (local.c), or through Slurm (slurm.c). The queue uses only this
 * interface.
 *
 * No job runs twice and none is lost, regardless of which processes are killed and when:
 *   - before anything is started, the store contains the name of the job's run folder and its
 *     random signature;
 *   - STATE/locks/ID is locked (flock) by the server and inherited by the process that
 *     starts the job;
 *   - `ebb run` creates the run folder, which must not exist yet, and signs it before it starts
 *     anything. So if a job is started twice, the second start fails. A folder without the job's
 *     signature is not treated as the job's folder;
 *   - run.json in the folder records how the job ended. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/jobs/spec.h"
#include "supervise/message.h"

struct err;
struct jobs;
struct jobs_options;
struct loop;
struct outcome;
struct runs_folder;
struct slurm;
struct workers;

enum { EXECUTOR_SENTENCE_MAX = 512 };

/* How a job ended: the first of these members that is set decides. */
struct executor_end {
    const char *no_start;   /* why the job could not be started, or NULL */
    const json_t *run_json; /* run.json if it records the job's end; not owned by the callee */
    const char *lost;       /* why the end of the job is unknown, or NULL */
    bool has_folder;        /* false if the job failed before it created its run folder */
    /* the disk is full, which may be why the job has no folder; false if HAS_FOLDER is true */
    bool is_disk_full;
};

/* ---- jobs_follow.c: executors make these calls in the event loop, to report on jobs ---- */

/* The order of the calls is: jobs_run_started, unless the job could not be started; jobs_run_news
 * any number of times; jobs_run_over. The executor frees its run before it calls jobs_run_over or
 * jobs_run_unstarted. */
void jobs_run_started(struct jobs *j, int64_t id);
/* Reports a message from the supervisor (docs/reference/api.md). The caller keeps ownership of
 * DOC. */
void jobs_run_news(struct jobs *j, int64_t id, json_t *doc);
/* Reports that no process of the job is left. */
void jobs_run_over(struct jobs *j, int64_t id, const struct executor_end *end);
/* Reports that nothing was started for the job. Call this instead of jobs_run_started and
 * jobs_run_over. */
void jobs_run_unstarted(struct jobs *j, int64_t id);
/* Reports the reason for which a submitted job now waits. WHY is "" if the job no longer waits. */
void jobs_run_waits(struct jobs *j, int64_t id, const char *why);
/* Reports a problem that concerns all jobs; NULL means that the problem is over. */
void jobs_run_trouble(struct jobs *j, const char *sentence);

struct executor;

/* A request to end a job. A second one can only shorten the grace period. */
struct executor_cancel {
    bool is_wanted, is_sent;
    char reason[EXECUTOR_SENTENCE_MAX];
    uint64_t grace_ns;
    uint64_t asked_ns; /* time of the request */
    uint64_t retry_ns; /* time of the next attempt, if the job does not react */
};

/* A job that was started and has not ended. Each kind of executor has its own struct, which begins
 * with this one. */
struct executor_run {
    struct executor *x;
    int64_t id;
    struct job_folder folder;
    struct executor_cancel cancel;
};

struct executor_kind {
    const char *name;
    /* True if jobs run on the server's machine. The server then chooses their GPUs, and knows
     * whether a job ran alone. */
    bool owns_machine;
    /* prepares the folder that contains all run folders; called in a thread */
    int (*prepare)(int runs_fd);
    int (*open)(struct executor *x, struct err *err); /* may be NULL */
    /* may be NULL; the caller must release all runs first */
    void (*close)(struct executor *x);
    /* Checks whether this kind of executor can carry out a request. Returns 0 or -EINVAL. */
    int (*check)(const struct executor *x, const struct job_spec *spec, struct err *err);
    /* Starts a job. Errors after this call are reported by jobs_run_over. */
    int (*start)(struct executor *x, int64_t id, const struct job_spec *spec,
                 const struct job_folder *folder, uint64_t gpus, struct executor_run **ret,
                 struct err *err);
    /* Follows a job that an earlier server started. The state of the job is reported later. Returns
     * NULL if out of memory. */
    struct executor_run *(*follow)(struct executor *x, int64_t id, const struct job_folder *folder);
    /* `cancel` and `checkpoint` send a request to the supervisor. They return -ENOTCONN if the
     * supervisor cannot be reached. */
    int (*cancel)(struct executor_run *run);
    int (*checkpoint)(struct executor_run *run);
    void (*cancel_again)(struct executor_run *run); /* may be NULL */
    /* Frees RUN. The job continues to run. */
    void (*release)(struct executor_run *run);
};
extern const struct executor_kind executor_local, executor_slurm;

struct executor {
    const struct executor_kind *kind;
    const struct jobs_options *options;
    struct slurm *slurm; /* state of executor_slurm */
    struct loop *loop;
    struct workers *workers;
    int locks_fd; /* fd of STATE/locks */
    struct runs_folder *runs;
    const char *runs_path; /* absolute path of the folder that contains all run folders */
    struct jobs *jobs;
};

/* Sends a cancel request to the supervisor. Returns -ENOTCONN if the supervisor cannot be reached;
 * the executor then retries until it reaches the supervisor. */
int executor_cancel(struct executor_run *run, const char *reason, uint64_t grace_ns);
/* Call this if the supervisor refused the cancel request. The executor sends it again after two
 * seconds. */
void executor_cancel_again(struct executor_run *run);

/* ---- shared by all kinds of executors ---- */

/* Opens the job's run folder. Returns an fd; -ENOENT if the job has no run folder; -EIO if the
 * folder that contains all run folders is not open; or another -errno. */
int executor_open_folder(struct runs_folder *runs, const struct job_folder *folder);
/* True if the disk is full, which may be the reason that a job has no run folder. */
bool executor_is_disk_full(struct runs_folder *runs);
/* Returns 1 if a process holds the lock of job ID, 0 if none does, or -errno. */
int executor_is_held(const struct executor *x, int64_t id);
/* Removes the lock file of a job. Call this once the job's end is stored. */
void executor_forget(struct executor *x, int64_t id);
/* Opens or creates the lock file of job ID and locks it. Returns an fd that a command can inherit,
 * -EBUSY if the lock is held, or another -errno. */
int executor_lock_take(const struct executor *x, int64_t id);
/* opens the lock file without locking it */
int executor_lock_open(const struct executor *x, int64_t id);
/* Returns 1 if the lock is held, 0 if it is free, or -errno. */
int executor_lock_is_held(int lock_fd);

enum { EXECUTOR_JSON_MAX = 2 << 20 }; /* maximum size of run.json */
/* Reads run.json in the job's folder. The file must contain an object of at most MAX bytes. The
 * caller frees both results. Returns 0, -ENOENT, -EBADMSG or -errno. */
int executor_read_run(const struct executor *x, const struct job_folder *folder, size_t max,
                      json_t **ret_json, struct outcome *ret);
bool executor_is_ended(const struct outcome *o);
/* Returns the cancel request for the supervisor. */
struct job_request executor_cancel_request(const struct executor_cancel *c);
/* True if the grace period of the cancel ended at least FORCE_NS ago. */
bool executor_cancel_is_late(const struct executor_cancel *c, uint64_t now_ns, uint64_t force_ns);
/* Writes the path of the run folder. Returns 0, or -ENAMETOOLONG. */
int executor_run_path(const struct executor_run *run, char ret[PATH_MAX]);
