/* Jobs of a server in words: a view of what its interface tells (docs/api.md, "A job"). Every text
 * in it is somebody else's and made harmless here. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

struct buf;

/* A line for each of JOBS, a list. NOW_S: the wall clock. WIDTH 0: as wide as it comes. */
void jobs_text(struct buf *out, const json_t *jobs, double now_s, bool colour, size_t width);
/* All that is worth telling of one. */
void job_text(struct buf *out, const json_t *job, double now_s, bool colour, size_t width);
/* "succeeded after 3 min 05 s", "failed after 12.4 s: exit status 1". */
void job_end_text(struct buf *out, const json_t *job);
