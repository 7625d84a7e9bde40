/* Prints the summary of a run: short at the end of `ebb run`, in full in `ebb show`. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* Prints the end of a run. DOC is the final run.json. If the job could not be started, prints an
 * error; else the summary on standard error or, if AS_JSON, DOC itself with the growing call
 * sites and the diagnosis added. */
void run_end_print(json_t *doc, bool is_quiet, bool as_json);
/* Prints `ebb show` for the run folder or recording at PATH; returns the exit status. */
int run_end_show(const char *path, bool as_json);
