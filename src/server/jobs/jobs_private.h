/* Shared by the files jobs*.c. A job whose end is stored occupies no memory: only its row in the
 * store and its run folder are left. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "run/spark.h"
#include "server/jobs/executor.h"
#include "run/job_facts.h"
#include "server/jobs/jobs.h"
#include "server/jobs/plan.h"
#include "server/jobs/spec.h"
#include "server/jobs/state.h"
#include "server/jobs/store.h"

struct err;
struct loop_source;
struct runs_folder;
struct task;
struct task_kind;
struct workers;

enum {
    JOBS_LISTENERS = 8,
    JOBS_SENTENCE_MAX = 512,
};

/* If FROM has the member m, copies it and sets has_m. */
#define FACTS_TAKE(to, from, m)                                                                    \
    ((from)->has_##m ? (void)((to)->m = (from)->m, (to)->has_##m = true) : (void)0)

enum job_checkpoint { CHECKPOINT_UNANSWERED = 0, CHECKPOINT_UNDER_WAY, CHECKPOINT_REFUSED };

/* The state of a job that has been started. */
struct job_live {
    struct executor_run *run; /* the running job; NULL after it has ended */
    json_t *request;
    struct job_folder folder;
    uint64_t gpus;
    uint64_t started_ns; /* wall-clock time of the start; 0 if not started yet */
    /* monotonic time of the spawn, and duration of the start; 0 if unknown */
    uint64_t spawned_ns, start_took_ns;
    char reason[JOBS_SENTENCE_MAX];
    bool is_alone;     /* true if no other job ran at the same time */
    bool is_cancelled; /* the job was cancelled by request */
    unsigned changes;  /* number of state changes that the supervisor has reported */
    /* Reported by the supervisor: */
    struct job_facts facts;
    enum job_checkpoint checkpoint; /* answer to the newest checkpoint request */
    char checkpoint_error[FACTS_TEXT];
    struct series spark;       /* series of the job's memory */
    uint64_t published_ns;     /* time at which the job was last published */
    bool has_news;             /* the facts have changed since published_ns */
    struct job_ending *ending; /* how the job ended; NULL if it has not ended */
    /* The job has ended, but there was not enough memory for ENDING: the executor's report, from
     * which it is made later, and the buffer of the report's text. */
    bool is_over;
    struct executor_end over;
    char over_text[EXECUTOR_SENTENCE_MAX];
};

/* A job that has not ended, or whose end is not stored yet. */
struct job {
    int64_t id;
    enum job_state state;
    int priority;
    unsigned gpus_wanted;
    uint64_t memory_bytes;
    const char *memory_from; /* "declared", "limit", "learned" or NULL */
    char *name;
    int64_t rerun_of; /* id of the job that this one repeats; 0 if it is not a rerun */
    uint64_t submitted_ns;
    int64_t *after; /* ids of the jobs for which this one still waits */
    size_t after_count;
    struct plan_verdict verdict;
    enum plan_why published_why;
    uint64_t changed_ns; /* wall-clock time of the latest change */
    /* Wall-clock time and time since boot when this server first saw the job. All later times of
     * the job are computed from these two, so that its times stay in order even if the wall
     * clock is set. */
    uint64_t wall_ns, boot_ns;
    /* is_name_taken: the name of the job's run folder is already in use; valid only if
     * is_name_checked is set */
    bool is_name_checked, is_name_taken;
    bool is_dirty;         /* the latest change is not on disk yet */
    bool has_room;         /* the job's slot, memory and GPUs are marked as used */
    struct job_live *live; /* NULL: not started */
};

enum trouble {
    TROUBLE_STORE,
    TROUBLE_START,
    TROUBLE_FOLDER, /* the folder of all run folders is not open yet */
    TROUBLE_FILE,
    TROUBLE_KEEP,
    TROUBLE_EXECUTOR, /* Slurm does not respond */
    TROUBLE_STRAYS,   /* some running jobs are not in the store */
    TROUBLES
};

struct jobs_listener {
    jobs_news_fn *fn;
    void *user;
};

struct jobs {
    struct loop *loop;
    struct workers *workers;
    /* separate threads for working folders: a hanging working folder must not delay reads of run
     * folders */
    struct workers *cwd_workers;
    struct jobs_options options;
    char *runs_path, *cwd;
    int locks_fd, ids_fd;
    struct runs_folder *runs;
    struct store *store;
    /* age of the store when this server started, and the time of that start */
    uint64_t age_ns, age_boot_ns;
    uint64_t age_kept_ns; /* the store's age as last written to disk */
    struct executor executor;

    struct job **active; /* jobs that have not ended, sorted by id */
    size_t active_count, active_cap;
    struct job **queue; /* queued jobs, sorted by priority, then id */
    size_t queue_count, queue_cap;
    struct plan_room room;
    bool is_planned; /* every queued job has an up-to-date reason for waiting */
    bool is_started; /* jobs_start was called */

    struct loop_source *kick_timer; /* timer for the next check of the queue */
    struct loop_source *tick_timer; /* timer that fires every second while there is work */
    bool is_ticking;
    /* task that checks the name of the next job's run folder (NULL: none), and its start time */
    struct task *name_task;
    uint64_t name_ns;
    /* no job is started before the monotonic time hold_ns */
    uint64_t hold_ns, hold_wait_ns;

    struct jobs_listener listener[JOBS_LISTENERS];
    char trouble[TROUBLES][JOBS_SENTENCE_MAX];

    struct jobs_keeper *keeper;
    struct jobs_file *file; /* NULL: no --job-file */
    bool is_file_due;       /* a job has changed since the last write of the job file began */
    bool is_unsettled;      /* a job has ended, and queued jobs may have waited for it */
    unsigned ended;         /* number of jobs that ended since the last malloc_trim */
};

/* ---- jobs.c ---- */

/* Runs a task: at once if jobs run on this machine, else in a thread, because access to a shared
 * folder may hang. *RET is NULL if the task has ended. Returns 0, or -errno after freeing USER. */
int jobs_task(struct jobs *j, struct workers *workers, const struct task_kind *kind, int64_t key,
              void *user, struct task **ret);

/* ---- jobs_table.c: jobs that have not ended ---- */

/* returns NULL if there is no such job, or its end is stored */
struct job *jobs_find(const struct jobs *j, int64_t id);
int jobs_insert(struct jobs *j, struct job *job);
void jobs_delete(struct jobs *j, struct job *job);
int jobs_enqueue(struct jobs *j, struct job *job);
void jobs_dequeue(struct jobs *j, struct job *job);
bool jobs_is_queued(const struct jobs *j, const struct job *job);
struct job *job_new(const struct store_job *row, const struct job_spec *spec);
struct job_live *job_live_new(json_t *request); /* takes ownership of REQUEST */
/* Gets the run folder of a job from its row in the store. */
void jobs_row_folder(const struct store_job *row, struct job_folder *ret);
/* Chooses the name and the signature of the run folder of a job that is about to start. */
int jobs_choose_folder(const struct job *job, struct job_live *live);
void job_unlive(struct job *job); /* frees job->live, which may be NULL, and sets it to NULL */
void job_free(struct job *job);
/* Occupies or frees the job's slot, memory and GPUs. */
void jobs_occupy(struct jobs *j, struct job *job);
void jobs_vacate(struct jobs *j, struct job *job);

/* ---- jobs_json.c ---- */

/* Converts a row to JSON. JOB is the same job in memory, or NULL. */
json_t *jobs_row_json(struct jobs *j, const struct store_job *row, const struct job *job);
/* returns NULL if the store cannot be read */
json_t *jobs_job_json(struct jobs *j, const struct job *job);
