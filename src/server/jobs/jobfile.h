/* A job file (training_jobs.json) as the front ends of other servers read it: read once, and kept
 * current by replacing it atomically. docs/job-file.md has the shape. */
#pragma once

#include <jansson.h>

struct buf;
struct err;

/* Appends the member of JOB, as the API has it: "JOB_ID": {"job_id", "status", "progress", …}, in
 * one line without its end. 0 or -ENOMEM. */
int jobfile_put(struct buf *out, const json_t *job);
/* Reads any of the shapes people have: an object by id or a list, either perhaps in "jobs". A list
 * comes back, in the file's order: {"job_id", "name", "state" (a word of jobs/state.h), "reason",
 * "submitted_s", "started_s", "ended_s", "request"}; each but the first three may be null. REQUEST
 * is what can be given to job_spec_read. -EINVAL with a sentence, -errno. */
int jobfile_read(const char *path, json_t **ret, struct err *err);
