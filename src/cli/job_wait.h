/* Waits for jobs on a server, and converts the way they ended to an exit status. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

/* Returns the exit status of a job that has ended, or 125 if it was cancelled or lost. */
int job_exit_status(const json_t *job);
/* Waits until the job has ended or UNTIL_NS is reached; in the second case *RET may be a job that
 * is still running. The caller owns *RET. Jobs continue while the server is restarted, so this
 * function waits half a minute for a server that does not answer. Returns 0, or -errno and an
 * error. */
int job_wait(const char *socket, int64_t id, uint64_t until_ns, json_t **ret, struct err *err);
/* Prints the log from OFFSET on. If FOLLOW, continues until the job has ended. Returns 0, -errno
 * and an error, or the exit status if the reader of the output has closed the pipe. */
int job_print_log(const char *socket, int64_t id, uint64_t offset, bool follow, struct err *err);
