/* A job file (training_jobs.json) as the front ends of other servers read it: read once, and kept
 * current by replacing it atomically. docs/job-file.md has the shape. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "server/jobs/state.h"

struct buf;
struct err;

/* Appends the member of JOB, as the API has it: "JOB_ID": {"job_id", "status", "progress", …}, in
 * one line without its end. 0 or -ENOMEM. */
int jobfile_put(struct buf *out, const json_t *job);
/* One job of a file; borrowed. */
struct jobfile_entry {
    const char *name;
    enum job_state state;                        /* JOB_LOST: of a word that nobody knows */
    uint64_t submitted_ns, started_ns, ended_ns; /* wall clock; 0: not known */
    json_t *request;                             /* for job_spec_read; NULL: not known */
};
typedef int jobfile_fn(void *user, const struct jobfile_entry *entry, struct err *err);
/* TEXT may have any of the shapes people have: an object by id or a list, either perhaps in "jobs".
 * Calls FN for each job, in the file's order, until it fails. PATH is for the sentence. 0, -EINVAL,
 * or what FN returned. */
int jobfile_read(const char *path, const char *text, size_t len, jobfile_fn *fn, void *user,
                 struct err *err);
