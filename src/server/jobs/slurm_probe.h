/* A probe: one read of the run folder of a Slurm job, which can also write a request. */
#pragma once

#include <jansson.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "run/outcome.h"
#include "server/jobs/slurm_private.h"
#include "server/jobs/workers.h"

struct slurm_probe {
    /* Set by the caller of slurm_probe_start: */
    bool is_last;      /* Slurm does not run the job any more, so this probe decides how it ended */
    bool is_absent;    /* when the probe began, Slurm certainly did not know the job */
    bool is_cancel;    /* the request is a cancel */
    uint64_t asked_ns; /* time of that cancel */
    /* Set by slurm_probe_start: */
    struct slurm_run *run;
    struct runs_folder *runs;
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

/* Starts a copy of the probe WANTED. Writes REQUEST into the folder unless it is NULL. Sets
 * run->probe until slurm_probed is called with the results. */
void slurm_probe_start(struct slurm_run *run, const struct slurm_probe *wanted,
                       const struct job_request *request);
/* False if the results have errors that mean that a network file system does not answer. */
bool slurm_probe_is_answer(const struct slurm_probe *probe);

/* ---- slurm_run.c ---- */

void slurm_probed(struct slurm_run *run, struct slurm_probe *probe); /* may free RUN */
