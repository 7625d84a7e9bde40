/* Prints the summary of a run: short at the end of `ebb run`, in full in `ebb show`. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "run/earlier.h"

/* The outputs of the end of a run. A file descriptor of -1 means that the file was not requested.
 * */
struct run_end_output {
    bool is_quiet, as_json;
    int junit_fd, markdown_fd;
    int termination_fd; /* see supervise/job_termination.h */
};

/* DOC is run.json at the end. Prints an error if the job could not be started; else the summary on
 * standard error or, if AS_JSON, DOC itself with the growing call sites and the diagnosis added.
 * Writes and closes the files. */
void run_end_print(json_t *doc, const struct run_end_output *to);
/* True if `--fail-on WHAT` fails on the verdict in DOC. */
bool run_end_fails(const json_t *doc, const char *what);
/* Reads the runs in the same folder as PATH that are called NAME. NAME may be NULL. */
void run_end_earlier(const char *path, const char *name, struct earlier *ret);
/* Prints `ebb show` for the run folder or recording at PATH. Returns the exit status, or -errno and
 * an error. */
int run_end_show(const char *path, bool as_json, struct err *err);
