/* Waits for jobs on a server, and computes the exit status of ebb from the way in which a job
 * ended. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Returns the exit status of a job that has ended, or 125 if the job has none: it was cancelled or
 * lost, or could not be started. */
int job_exit_status(const json_t *job);
/* Waits until the job has ended, but not longer than UNTIL_NS, so *RET may be a job that is still
 * running. The caller owns *RET. Jobs continue while the server is restarted, so this function
 * waits half a minute for a server that does not answer. Returns 0, or -errno and an error. */
int job_wait(const char *socket, int64_t id, uint64_t until_ns, json_t **ret, struct err *err);
/* Prints the log from OFFSET on. If FOLLOW, continues until the job has ended. Returns 0, -errno
 * and an error, or the exit status if the reader of the output has closed the pipe. */
int job_print_log(const char *socket, int64_t id, uint64_t offset, bool follow, struct err *err);
