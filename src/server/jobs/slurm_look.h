/* One look into the run folder of a job of Slurm. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "run/outcome.h"
#include "server/jobs/slurm_private.h"
#include "server/jobs/workers.h"

struct slurm_look {
    /* Set by the caller of slurm_look_start: */
    bool is_last;      /* Slurm does not run the job any more, so this look decides how it ended */
    bool is_absent;    /* Slurm certainly did not know the job when the look was begun */
    bool is_cancel;    /* the request is a cancel */
    uint64_t asked_ns; /* asked_ns of that cancel */
    /* Set by slurm_look_start: */
    struct slurm_run *run;
    int runs_fd;
    char run_dir[EXECUTOR_NAME_MAX], folder_id[EXECUTOR_NAME_MAX], error_path[PATH_MAX];
    struct buf request; /* text of request.json; empty: none */
    /* The results: */
    int found;   /* 0: the job has a folder; or -errno */
    int written; /* 0, or why request.json could not be written */
    int read;    /* 0, or why run.json could not be read */
    bool is_ended;
    json_t *run_json;
    struct outcome outcome;
    json_t *state;        /* state.json if it has changed, else NULL */
    uint64_t state_stamp; /* its version */
    bool is_disk_full;
    char error[400]; /* ": " and the last line of the batch script's standard error; or "" */
};

/* Starts a look as WANTED, and writes REQUEST into the folder unless it is NULL. Sets run->look
 * until slurm_looked is called with the results. */
void slurm_look_start(struct slurm_run *run, const struct slurm_look *wanted,
                      const struct job_request *request);
/* False if the errors are those of a file server that does not answer a soft mount. */
bool slurm_look_is_answer(const struct slurm_look *look);

/* ---- slurm_run.c ---- */

void slurm_looked(struct slurm_run *run, struct slurm_look *look); /* may free RUN */
