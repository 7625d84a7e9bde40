/* A job file (training_jobs.json) as the front ends of other servers read it: read once, and kept
 * current by replacing it atomically. docs/job-file.md has the shape. */
#pragma once

#include <jansson.h>

struct err;

/* {"JOB_ID": {"job_id", "status", "progress", "created_at", …}} of JOBS, a list as the API tells
 * them. NULL: out of memory. */
json_t *jobfile_of(const json_t *jobs);
int jobfile_write(const char *path, const json_t *doc, struct err *err);
/* Reads any of the shapes people have: an object by id or a list, either perhaps in "jobs". A list
 * comes back, in the file's order: {"job_id", "name", "state" (a word of jobs/state.h), "reason",
 * "submitted_s", "started_s", "ended_s", "request"}; each but the first three may be null. REQUEST
 * is what can be given to job_spec_read. -EINVAL with a sentence, -errno. */
int jobfile_read(const char *path, json_t **ret, struct err *err);
