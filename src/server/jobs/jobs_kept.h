/* Declarations for ended jobs: their facts, their retention, and the job file. Used only by the
 * files of the jobs. */
#pragma once

#include "server/jobs/jobs_private.h"

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
/* How long servers have run with this store in total. The age of ended jobs is measured by this
 * time, because the wall clock can jump. A jump by a year would remove all ended jobs. */
uint64_t jobs_age_ns(const struct jobs *j);

/* ---- jobs_file.c: the job file ---- */

int jobs_file_new(struct jobs *j, struct jobs_file **ret);
void jobs_file_free(struct jobs_file *f); /* abandons a write in progress */
void jobs_file_check(struct jobs *j, uint64_t now_ns);
