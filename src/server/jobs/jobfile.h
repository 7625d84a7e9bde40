/* Reads and writes the job file (training_jobs.json) of other servers and their front ends.
 * docs/reference/job-file.md describes the format. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "server/jobs/state.h"

struct buf;
struct err;

/* Appends JOB, a job as in the API, as one line without a newline: "JOB_ID": {"job_id", "status",
 * "progress", …}. Returns 0 or -ENOMEM. */
int jobfile_put(struct buf *out, const json_t *job);
/* One job of a file, owned by the reader and valid only during the callback. */
struct jobfile_entry {
    const char *name;
    enum job_state state; /* state of the job; JOB_LOST if the status in the file is unknown */
    uint64_t submitted_ns, started_ns, ended_ns; /* wall-clock times; 0 if unknown */
    json_t *request; /* request for job_spec_read; NULL if the file has no command */
};
typedef int jobfile_fn(void *user, const struct jobfile_entry *entry, struct err *err);
/* Reads TEXT, which is an object with ids as keys, or a list of jobs. The object or list may also
 * be the value of a key "jobs". Calls FN for each job in order, until FN fails. PATH is for the
 * error message. Returns 0, -EINVAL, or the result of FN. */
int jobfile_read(const char *path, const char *text, size_t len, jobfile_fn *fn, void *user,
                 struct err *err);
