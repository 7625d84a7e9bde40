/* What is kept of jobs: their ends, their folders, the job file. Of the jobs' own files alone. */
#pragma once

#include "server/jobs/jobs_private.h"

/* ---- jobs_end.c: what is kept of an ended job, from its run.json ---- */

enum { ENDING_COUNTS = 10 };
struct job_ending {
    enum job_state state;
    char reason[JOBS_SENTENCE_MAX];
    uint64_t duration_ns; /* 0: not known */
    uint64_t peak_bytes;  /* to ask for next time; 0: not known */
    struct job_facts facts;
    json_t *end; /* for the store */
    struct {
        const char *key;
        double by;
    } counts[ENDING_COUNTS];
    size_t count_count;
};
/* RUN_JSON, NO_START as the executor has them. NULL: out of memory. */
struct job_ending *job_ending_new(const struct job_live *live, const json_t *run_json,
                                  const char *no_start);
void job_ending_free(struct job_ending *e);

/* ---- jobs_keep.c: what is kept of ended jobs ---- */

int jobs_keeper_new(struct jobs *j, struct jobs_keeper **ret, struct err *err);
void jobs_keeper_free(struct jobs_keeper *k);
void jobs_keeper_wake(struct jobs_keeper *k); /* something has ended */
/* How long servers have run with this store, all of them together: what ended jobs age by. The wall
 * clock does not come into it: one wrong reading of that would make everything old. */
uint64_t jobs_age_ns(const struct jobs *j);

/* ---- jobs_file.c: the job file, kept current ---- */

int jobs_file_new(struct jobs *j, struct jobs_file **ret);
void jobs_file_free(struct jobs_file *f); /* what is being written is given up */
void jobs_file_check(struct jobs *j, uint64_t now_ns);
