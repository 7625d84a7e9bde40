/* Prints the summary of a run: short at the end of `ebb run`, in full in `ebb show`. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "base/err.h"
#include "judge/cluster.h"
#include "present/report.h"
#include "run/earlier.h"

/* The files that are written at the end of a run. A file descriptor of -1 means that the file was
 * not requested. */
struct run_end_output {
    bool is_quiet, as_json;
    int junit_fd, markdown_fd;
    int termination_fd; /* see supervise/job_termination.h */
};

/* DOC is the content of run.json at the end of the job. If the job could not be started, prints an
 * error. Otherwise prints the summary on standard error or, if AS_JSON, DOC with the growing call
 * sites and the diagnosis added. Writes and closes the files. */
void run_end_print(json_t *doc, const struct run_end_output *to);
/* True if the verdict in DOC is one that `--fail-on WHAT` treats as a failure. */
bool run_end_fails(const json_t *doc, const char *what);
/* Prints the output of `ebb show` for the run folder or recording at PATH. Returns the exit status,
 * or -errno and an error. */
int run_end_show(const char *path, bool as_json, struct err *err);

/* ---- a run on several nodes ---- */

struct cluster_read {
    struct cluster *cluster;
    bool has_report;
    struct report report;   /* report of the worst node, with the leaking line and the advice */
    struct summary summary; /* summary of the worst node's run, as far as it was read */
    struct earlier earlier; /* earlier jobs of the same name */
};
/* Reads the job folder PATH. IS_BRIEF has the same meaning as in report_read. Returns 0, or -errno
 * with an error. */
int cluster_read_all(const char *path, const struct run_settings *settings,
                     const struct judge_options *options, bool is_brief, struct cluster_read *ret,
                     struct err *err);
void cluster_read_fini(struct cluster_read *r);
/* Prints the summary of the job folder PATH to FD, at the end of a Slurm step. Returns 0 or
 * -errno. */
int cluster_print_end(int fd, const char *path, bool as_json);
/* Prints the ranks of the job folder PATH, for `ebb verdict` and `ebb show`. Returns the exit
 * status, or -errno and an error. */
int cluster_print(const char *path, const struct run_settings *settings,
                  const struct judge_options *options, bool as_json, enum verdict_leak *ret_leak,
                  struct err *err);
