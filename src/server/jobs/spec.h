/* What a job is asked to be (docs/api.md, "A request"): taken in from outside, checked whole, kept
 * as it was given. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "options/option.h"

struct err;

/* Bytes, but for the first: entries. */
enum {
    JOB_AFTER_MAX = 64,
    JOB_COMMAND_MAX = 128 << 10,
    JOB_ENV_MAX = 128 << 10,
    JOB_OPTIONS_MAX = 16 << 10,
    JOB_NAME_MAX = 128,
};

struct job_spec {
    json_t *doc; /* owned: normalised, every key of a request there; may be read again */
    /* views into it */
    const char *name;
    const char *cwd;
    int gpus;
    int priority;
    int64_t after[JOB_AFTER_MAX];
    size_t after_count;
    uint64_t memory_bytes; /* what to set aside: "memory", else an absolute "limit"; 0: not told */
    const char *memory_from;      /* "declared" or "limit"; NULL */
    struct options_given options; /* of `ebb run`, --limit among them */
};

/* Borrows DOC. -EINVAL with a sentence that names the key and the value. BASE_CWD is where relative
 * folders are; the folder must exist. Unknown keys are errors. */
int job_spec_read(const json_t *doc, const char *base_cwd, struct job_spec *ret, struct err *err);
void job_spec_fini(struct job_spec *spec); /* accepts a zeroed one */
/* What `ebb` is to be called with: run --detached --lock-fd N --run-dir=PATH … -- COMMAND…; both
 * NULL-ended, each one allocation for free(). The environment is the server's own without EBB_* and
 * CUDA_VISIBLE_DEVICES, then the request's, then CUDA_VISIBLE_DEVICES with the numbers of GPUS. A
 * job that asked for none sees none, unless the request's own environment says otherwise. */
struct job_launch {
    char **argv;
    char **env;
};
struct job_place {
    const char *run_dir;   /* the folder's path */
    const char *folder_id; /* what it is to be signed with */
    int lock_fd;
    uint64_t interval_ns, log_bytes; /* where the request has none; 0: as `ebb run` does */
};
/* -ENOMEM */
int job_spec_launch(const struct job_spec *spec, const char *program, const struct job_place *place,
                    const int *gpus, size_t gpu_count, struct job_launch *ret);
void job_launch_fini(struct job_launch *launch);

/* Name of the run folder, "17-NAME": NAME by the rule of trace/rundir.h. */
enum { JOB_FOLDER_MAX = 96, JOB_FOLDER_ID_SIZE = 33 };
void job_spec_folder(int64_t id, const char *name, char ret[JOB_FOLDER_MAX]);
