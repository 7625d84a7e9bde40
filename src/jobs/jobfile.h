/* A job file (training_jobs.json) as the front ends of other servers read it: read once, and kept
 * current by replacing it atomically. docs/job-file.md has the shape. */
#pragma once

#include <jansson.h>

struct err;

/* {"JOB_ID": {"job_id", "status", "progress", "created_at", …}}; JOBS as the API tells them. */
json_t *jobfile_of(const json_t *jobs);
int jobfile_write(const char *path, const json_t *doc, struct err *err);
/* Reads any of the shapes people have: an object by id or a list. A list of {"request" or NULL,
 * "state", "name", "submitted_s", …} comes back. */
int jobfile_read(const char *path, json_t **ret, struct err *err);
