/* Declarations for the state changes of jobs, for ended jobs and their retention, and for the
 * job file. Used only by the files jobs*.c. */
#pragma once

#include "server/jobs/jobs_private.h"

/* ---- jobs_state.c ---- */

void jobs_trouble_set(struct jobs *j, enum trouble kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void jobs_trouble_clear(struct jobs *j, enum trouble kind);
/* Returns the current wall-clock time for JOB. It is unaffected when the clock is set, and is never
 * before the job's last change. */
uint64_t job_now_ns(const struct job *job);
/* Changes the state in memory and stores the change: now or, if that fails, as soon as possible.
 * REASON may be NULL. */
void jobs_change(struct jobs *j, struct job *job, enum job_state state, const char *reason);
/* Changes the state and stores the change, without publishing it. Returns false, with the state
 * unchanged, if the change cannot be stored. */
bool jobs_change_first(struct jobs *j, struct job *job, enum job_state state);
/* Sets the state that a supervisor has reported. The change is on disk within about a second. */
void jobs_change_soft(struct jobs *j, struct job *job, enum job_state state, const char *reason);
/* Ends a job that was never started. Returns 0 after freeing JOB, or -errno if the end cannot be
 * stored. */
int jobs_end_queued(struct jobs *j, struct job *job, enum job_state state, const char *reason,
                    struct err *err);
/* Call this when JOB has ended. Frees JOB once the end is stored. */
void jobs_end(struct jobs *j, struct job *job, const struct executor_end *end);
/* Stores changes that are not on disk yet. Returns true if some changes could not be stored. */
bool jobs_sync_all(struct jobs *j);
void jobs_publish_job(struct jobs *j, struct job *job, bool is_change);
void jobs_publish_removed(struct jobs *j, int64_t id);
/* Publishes a message from a supervisor. The caller keeps ownership of MESSAGE. */
void jobs_publish(struct jobs *j, enum jobs_news_kind kind, int64_t id, const json_t *message);
/* Publishes JOB now or, if it was published a moment ago, within a second. */
void jobs_publish_verdict(struct jobs *j, struct job *job);
void jobs_tick_on(struct jobs *j);

/* ---- jobs_end.c: the facts to store about an ended job ---- */

struct job_ending {
    enum job_state state;
    char reason[JOBS_SENTENCE_MAX];
    uint64_t duration_ns; /* 0: unknown */
    uint64_t peak_bytes;  /* memory to reserve for the next run; 0 if unknown */
    bool has_folder;
    struct job_facts facts;
    json_t *end;            /* the facts as JSON, for the store */
    double cpu_s;           /* CPU time that ebb used; 0: unknown */
    uint64_t start_took_ns; /* 0: unknown */
};
/* Collects the facts of an ended job. Returns NULL if out of memory. */
struct job_ending *job_ending_new(const struct job_live *live, const struct executor_end *end);
void job_ending_free(struct job_ending *e);
/* Adds the ended job to the counters. */
int job_ending_count(const struct job_ending *e, struct store *store, struct err *err);

/* ---- jobs_keep.c: retention of ended jobs ---- */

int jobs_keeper_new(struct jobs *j, struct jobs_keeper **ret, struct err *err);
void jobs_keeper_free(struct jobs_keeper *k);
void jobs_keeper_wake(struct jobs_keeper *k); /* call this when a job has ended */
/* Returns the age of the store: the total time that servers have run with it. The age of ended jobs
 * is measured in this time, because the wall clock can jump, and a jump by a year would remove all
 * ended jobs. */
uint64_t jobs_age_ns(const struct jobs *j);

/* ---- jobs_file.c: the job file ---- */

int jobs_file_new(struct jobs *j, struct jobs_file **ret);
void jobs_file_free(struct jobs_file *f); /* abandons a write in progress */
void jobs_file_check(struct jobs *j, uint64_t now_ns);
