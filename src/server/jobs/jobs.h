/* The jobs of a server, from submission to removal, on one event loop. When a call returns 0, its
 * change is on disk. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "run/job_facts.h"
#include "server/jobs/plan.h"
#include "server/jobs/slurm.h"
#include "server/jobs/spec.h"
#include "server/jobs/state.h"
#include "server/jobs/store.h"

struct jobs;
struct loop;
struct task;

/* --keep: ended jobs that exceed any of these limits are removed, oldest first. 0 means no
 * limit. */
struct jobs_keep {
    uint64_t age_ns, bytes;
    unsigned count;
};

/* Options of jobs_open. The strings must outlive the struct jobs. */
struct jobs_options {
    const char *state_dir; /* absolute path of the state folder, which is created with mode 0700 */
    unsigned slots;
    uint64_t memory_bytes; /* memory for all jobs together; 0 means no limit */
    unsigned gpus;
    struct jobs_keep keep;
    uint64_t log_bytes;   /* maximum size of a job's log */
    uint64_t interval_ns; /* default sampling interval */
    uint64_t grace_ns;    /* default grace period of a cancel */
    const char *job_file; /* --job-file; NULL: none */
    const char *program;  /* path of ebb itself: /proc/self/exe, resolved at the start */
    const char *runs_dir; /* absolute path of the run folders; if NULL, runs in the state folder */
    bool is_slurm;        /* jobs run through Slurm */
    struct slurm_options slurm;
    uint64_t files_max; /* soft limit on open files for the jobs; 0: the server's own limit */
    /* time between the end of a cancel's grace period and the kill of the supervisor; 0: 30 s */
    uint64_t force_ns;
};

/* Kinds of changes to jobs. Changes are published from the event loop when they happen. */
enum jobs_news_kind {
    /* the job changed: DOC is the job as in the API, and STATE, REASON and IS_CHANGE are set */
    JOBS_NEWS_JOB,
    JOBS_NEWS_REMOVED, /* no DOC */
    JOBS_NEWS_ANSWER,  /* the supervisor answered a checkpoint request; no DOC */
    /* the kinds below are messages from a supervisor, with the job's id added */
    JOBS_NEWS_SAMPLE,
    JOBS_NEWS_MARK,
    JOBS_NEWS_VERDICT,
    JOBS_NEWS_EVENT,
    JOBS_NEWS_LOG,
};
struct jobs_news {
    enum jobs_news_kind kind;
    int64_t id;
    const json_t *doc; /* borrowed */
    enum job_state state;
    const char *reason; /* "": no reason */
    bool is_change;     /* the state or the verdict has changed */
};
typedef void jobs_news_fn(void *user, const struct jobs_news *news);

int jobs_open(struct loop *loop, const struct jobs_options *options, struct jobs **ret,
              struct err *err);
/* Adopts the jobs that an earlier server started, then starts queued jobs. */
int jobs_start(struct jobs *jobs, struct err *err);
void jobs_close(struct jobs *jobs); /* frees JOBS; running jobs continue */
/* Adds a listener (at most 8). If FN is NULL, removes the listener that was added with USER. */
void jobs_listen(struct jobs *jobs, jobs_news_fn *fn, void *user);

/* A job submission. Callers embed this struct as the first member of a struct of their own. That
 * struct must be zeroed except for `done` and `free`, and must stay valid from jobs_submit until
 * `free` is called. */
struct jobs_submission {
    /* Called from the event loop. R is 0; -EINVAL if the request is invalid; or -ENOSPC or another
     * -errno if the job was not accepted. If R is 0, JOB is the job as in the API, and the callee
     * owns it. */
    void (*done)(struct jobs_submission *s, int r, json_t *job, const struct err *err);
    void (*free)(struct jobs_submission *s); /* called from the event loop */
    /* Set by jobs_submit: */
    struct jobs *jobs;
    struct job_spec spec;
    int64_t rerun_of; /* 0: none */
    int result;       /* result of the check of the working folder */
    struct err err;
};
/* Submits the job that REQUEST describes or, if RERUN_OF is not 0, reruns the job with that id.
 * If jobs run on this machine, the job is submitted at once. Otherwise a thread checks the
 * working folder first, because access to a shared folder may hang. *RET is NULL if `done` was
 * already called. Returns 0 or -errno; on failure `free` has been called. */
int jobs_submit(struct jobs *jobs, const json_t *request, int64_t rerun_of,
                struct jobs_submission *s, struct task **ret);
/* Cancels a job. A queued job is cancelled at once. If the change cannot be stored, the job stays
 * queued, and the result is -ENOSPC or another -errno. A second cancel can only shorten the grace
 * period. If GRACE_NS is UINT64_MAX, the default period is used. Returns 0, -ENOENT, or -EALREADY
 * if the job has ended. */
int jobs_cancel(struct jobs *jobs, int64_t id, const char *reason, uint64_t grace_ns,
                struct err *err);
/* Requests a checkpoint. Returns 0, -ENOENT, -EALREADY if the job is not running, or -ENOTCONN if
 * its supervisor cannot be reached. */
int jobs_checkpoint(struct jobs *jobs, int64_t id, struct err *err);
/* Gets the answer to the last checkpoint request. Returns 0 if the supervisor has passed the
 * request on to the job; -EINPROGRESS if there is no answer yet; -EALREADY if the supervisor
 * refused, with the reason in ERR. */
int jobs_checkpoint_answer(struct jobs *jobs, int64_t id, struct err *err);

int jobs_get(struct jobs *jobs, int64_t id, bool with_changes, json_t **ret, struct err *err);
/* Gets the complete request of a job, including the values of its environment variables. The caller
 * owns *RET. */
int jobs_request(struct jobs *jobs, int64_t id, json_t **ret, struct err *err);
/* Lists at most 500 jobs, or 100 if WANTED has no limit. */
int jobs_list(struct jobs *jobs, const struct store_filter *wanted, json_t **ret, struct err *err);
/* returns JOB_STATES, which is not a state, if there is no such job */
enum job_state jobs_state(struct jobs *jobs, int64_t id);
/* One read of a job's run folder. Callers embed this struct as the first member of a struct of
 * their own, which must stay valid from jobs_read until `free` is called. */
struct jobs_reading {
    /* Called in a thread if access to the folder may hang. FOLDER is the fd of the folder, or
     * -errno, which is -ENOENT if the job has no folder. */
    void (*read)(struct jobs_reading *r, int folder);
    void (*done)(struct jobs_reading *r); /* called from the event loop after `read` */
    void (*free)(struct jobs_reading *r); /* called from the event loop */
    /* Set by jobs_read: */
    struct runs_folder *runs;
    struct job_folder folder;
};
/* Starts a read. If jobs run on this machine, the folder is read at once, and *RET is NULL.
 * Otherwise a thread reads it, because access to a shared folder may hang. Returns 0 or -errno; on
 * failure `free` has been called. */
int jobs_read(struct jobs *jobs, int64_t id, struct jobs_reading *r, struct task **ret);
const char *jobs_runs_path(const struct jobs *jobs); /* the folder that contains all run folders */

/* Returns the slots, memory and GPUs of the server, in total and in use. */
json_t *jobs_room_json(const struct jobs *jobs);
/* Returns an array of messages about current problems, such as a full disk. */
json_t *jobs_trouble(const struct jobs *jobs);
/* Values for metrics. The pointers are valid until control returns to the loop. */
struct jobs_metrics {
    uint64_t by_state[JOB_STATES];
    const struct plan_room *room;
    struct store_counter *counters;
    size_t counter_count;
    struct jobs_running {
        int64_t id;
        uint64_t started_ns; /* wall-clock time of the start; 0 if unknown */
        const struct job_facts *facts;
    } * running;
    size_t running_count;
};
void jobs_metrics(struct jobs *jobs, struct jobs_metrics *ret);
void jobs_metrics_fini(struct jobs_metrics *m);

/* Imports a job file of another server ({"ID": {"status", …}} or a list). Ended and running jobs
 * become history; queued jobs with a command are queued. Imports either all jobs or none. A file
 * with the same content is imported only once. Returns the number of jobs. */
int jobs_import(struct jobs *jobs, const char *path, struct err *err);
