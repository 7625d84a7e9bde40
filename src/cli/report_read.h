/* Everything that is known of a run, as the document that reports are made of (view/report.h). */
#pragma once

#include <jansson.h>

struct err;

/* PATH is a run folder or a recording. What cannot be read is told in "trouble", as long as there
 * is either a recording or a run.json. 0 or -errno with a sentence. */
int report_read(const char *path, json_t **ret, struct err *err);
/* Where the run of AFTER is shorter than BEFORE, which was read from PATH: puts into BEFORE as
 * "early" what was known of it when it was as long as that: {"length": "80 steps", "verdict": …}.
 * 0, or -errno with a sentence. */
int report_read_early(const char *path, json_t *before, const json_t *after, struct err *err);
