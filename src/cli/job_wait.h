/* Waiting for jobs of a server, and what their end means to a shell. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* A job that did not end by itself; and --timeout. */
enum { JOB_WAIT_NO_STATUS = 125, JOB_WAIT_TIMEOUT = 3 };

bool job_is_ended(const json_t *job);
/* Of a job that has ended: its own status; 125 where it was cancelled or lost. */
int job_exit_status(const json_t *job);
/* GET of the job, once it has ended, or UNTIL_NS is over: *RET, the caller's, may not have ended
 * then. A server that answered and stops is given half a minute to return: jobs outlive it. 0, or
 * the exit status with a sentence printed. */
int job_wait(const char *command, const char *socket, int64_t id, uint64_t until_ns, json_t **ret);
/* Prints the log from OFFSET on, with FOLLOW until the job has ended. 0 or the exit status. */
int job_print_log(const char *command, const char *socket, int64_t id, uint64_t offset,
                  bool follow);
