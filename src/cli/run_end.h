/* Prints the summary of a run: short at the end of `ebb run`, in full in `ebb show`. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

/* Where the end of a run is written. A file of -1 was not requested. */
struct run_end_output {
    bool is_quiet, as_json;
    int junit_fd, markdown_fd;
};

/* DOC is run.json at the end. Prints an error if the job could not be started; else the summary on
 * standard error or, if AS_JSON, DOC itself with the growing call sites and the diagnosis added.
 * Writes and closes the files. */
void run_end_print(json_t *doc, const struct run_end_output *to);
/* True if the verdict in DOC is one on which `--fail-on WHAT` fails. */
bool run_end_fails(const json_t *doc, const char *what);
/* Prints `ebb show` for the run folder or recording at PATH; returns the exit status. */
int run_end_show(const char *path, bool as_json);
