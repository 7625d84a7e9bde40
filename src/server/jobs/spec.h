/* A job request (docs/reference/api.md, "A request"). It is user input, which is validated
 * completely before it is stored. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "options/option.h"

struct err;

/* Limits of a request. JOB_AFTER_MAX is a number of job ids, the others are sizes in bytes. */
enum {
    JOB_AFTER_MAX = 64,
    JOB_COMMAND_MAX = 128 << 10,
    JOB_ENV_MAX = 128 << 10,
    JOB_OPTIONS_MAX = 16 << 10,
    JOB_NAME_MAX = 128,
};

struct job_spec {
    json_t *doc; /* the normalised request with all keys, in the form that job_spec_read accepts */
    /* pointers into DOC */
    const char *name;
    const char *cwd;
    int gpus;
    int priority;
    int64_t after[JOB_AFTER_MAX];
    size_t after_count;
    uint64_t memory_bytes; /* memory to reserve: "memory", else an absolute "limit"; 0 if unknown */
    const char *memory_from;      /* source of memory_bytes: "declared" or "limit", or NULL */
    struct options_given options; /* options of `ebb run`, including --limit */
};

/* Reads a request from DOC, which the caller still owns. Relative folders are relative to BASE_CWD.
 * Unknown keys are errors. Returns 0, or -EINVAL with an error that contains the key and the
 * value. */
int job_spec_read(const json_t *doc, const char *base_cwd, struct job_spec *ret, struct err *err);
/* Checks whether a working folder exists. May block if the folder is on a shared file system.
 * Returns 0 or -EINVAL. */
int job_spec_check_cwd(const char *path, struct err *err);
/* frees the members of SPEC; accepts a zeroed struct */
void job_spec_fini(struct job_spec *spec);
/* A list of strings: their text, each string followed by a NUL, and their number. */
struct launch_args {
    struct buf bytes;
    size_t count;
};
void launch_args_add(struct launch_args *t, const char *text);
void launch_args_addf(struct launch_args *t, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* The command line of `ebb` (run --detached --lock-fd N --run-dir=PATH … -- COMMAND…) and its
 * environment. Both end with NULL, and each is a single allocation that the caller frees. The
 * environment consists of three parts: the server's own without EBB_* and CUDA_VISIBLE_DEVICES,
 * then the request's, then CUDA_VISIBLE_DEVICES=GPUS. A job that requests no GPUs ("") sees no GPU,
 * unless the request's own environment sets the variable. If GPUS is NULL, another program such as
 * Slurm sets CUDA_VISIBLE_DEVICES. */
struct job_launch {
    char **argv;
    char **env;
};
struct job_place {
    const char *run_dir;   /* path of the run folder */
    const char *folder_id; /* signature of the run folder */
    int lock_fd; /* fd of the lock; -1: the job is followed through its folder (--folder-control) */
    /* values for a request that does not set them; 0 means the default of `ebb run` */
    uint64_t interval_ns, log_bytes;
};
/* HEAD contains the arguments before PROGRAM, or is NULL. Takes ownership of HEAD. Returns 0 or
 * -ENOMEM. */
int job_spec_launch(const struct job_spec *spec, struct launch_args *head, const char *program,
                    const struct job_place *place, const char *gpus, struct job_launch *ret);
void job_launch_fini(struct job_launch *launch);

/* The run folder of a job. It belongs to the job only if it is signed with ID. */
enum { JOB_FOLDER_MAX = 96, JOB_FOLDER_ID_SIZE = 33 };
struct job_folder {
    char name[JOB_FOLDER_MAX]; /* name within runs/; "" if there is none */
    /* signature of the folder; "" if an old ebb created the folder without a signature */
    char id[JOB_FOLDER_ID_SIZE];
};
/* Writes the name of the run folder, "17-NAME", where NAME is cleaned as in trace/rundir.h. */
void job_spec_folder(int64_t id, const char *name, char ret[JOB_FOLDER_MAX]);
