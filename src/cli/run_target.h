/* Finds the run that a folder or a pid refers to, and makes its supervisor read the heap again. */
#pragma once

#include <limits.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/err.h"

struct run_target {
    char folder[PATH_MAX]; /* path of the run folder, or "" if the run is not recorded */
    char marks[108];       /* socket of the run's supervisor, or "" if the run has ended */
    int32_t pid;           /* pid given on the command line, or 0 */
    char obstacle[128];    /* why the heap was not profiled, or "" if unknown */
};
/* Finds a run. OPERAND is a run folder, the folder of a job on several nodes (then the worst rank
 * is used), or the pid of a process of a run or of its launcher. Returns 0, or -errno with an
 * error. */
int run_target_find(const char *operand, struct run_target *ret, struct err *err);
/* Like run_target_find, but fails if the run is not recorded. */
int run_target_find_recorded(const char *operand, struct run_target *ret, struct err *err);
/* Finds the folder and the process of a rank in the job folder PATH; RANK -1 is the worst rank. */
int run_target_find_rank(const char *path, int64_t rank, struct run_target *ret, struct err *err);
/* Makes the supervisor read the heap of PID (0 for all processes) again; does nothing if the run
 * has ended. */
int run_target_refresh(const struct run_target *run, int32_t pid, struct err *err);
/* Binds a datagram socket "MARKS.WHAT-PID" for the answer to a query, next to the run's own socket
 * MARKS. Returns its fd or -errno. The caller unlinks it. */
int run_target_bind(const char *marks, const char *what, struct sockaddr_un *ret);
