/* Jobs of a server in words: a view of what its interface returns (docs/api.md, "A job"). Every
 * text in it is somebody else's. */
#pragma once

#include <jansson.h>

struct buf;
struct doc;

/* A line for each of JOBS, a list. NOW_S: the wall clock. */
void jobs_doc(struct doc *d, const json_t *jobs, double now_s);
/* All that is worth showing of one. */
void job_doc(struct doc *d, const json_t *job, double now_s);
/* "succeeded after 3 min 05 s", "failed after 12.4 s: exit status 1". */
void job_end_text(struct buf *out, const json_t *job);
