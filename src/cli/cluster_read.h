/* Reads a run on several nodes for the commands that show it. */
#pragma once

#include "base/err.h"
#include "judge/cluster.h"
#include "present/report.h"
#include "run/earlier.h"

struct cluster_read {
    struct cluster *cluster;
    bool has_report;
    struct report report; /* report of the worst node, which has the leaking line and the advice */
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
