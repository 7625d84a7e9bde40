/* Renders jobs of a server from the API's documents (docs/reference/api.md, "A job"). All texts in
 * them come from other programs. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

struct buf;
struct doc;

/* Returns true if the job succeeded, failed, was cancelled or was lost. */
bool job_is_ended(const json_t *job);
/* Renders one line for each job in the list JOBS. NOW_S is the wall clock. */
void jobs_doc(struct doc *d, const json_t *jobs, double now_s);
void job_doc(struct doc *d, const json_t *job, double now_s);
/* Appends text such as "succeeded after 3 min 05 s" or "failed after 12.4 s: exit status 1". */
void job_end_text(struct buf *out, const json_t *job);
