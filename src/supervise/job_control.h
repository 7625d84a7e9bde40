/* The control socket, by which the job server follows a job and sends requests, and the status
 * messages sent there (docs/api.md). All of it costs nothing while nobody is connected. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct job;
struct job_control;
struct mark;

/* Beside the socket for marks; where there is none, there is no control either. */
void job_control_start(struct job *j);
void job_control_free(struct job *j);
const char *job_control_path(const struct job_control *c); /* NULL: none */
void job_control_tick(struct job *j, uint64_t now_ns);
void job_control_mark(struct job *j, const struct mark *mark);
void job_control_event(struct job *j, uint64_t now_ns, const char *act, const char *why);
void job_control_log(struct job *j); /* the job has written output */
/* The state may have changed. */
void job_control_state(struct job *j);

/* Answers a query mark, of the job itself or of a command beside it; false if MARK is another kind.
 * A query is not recorded. Never blocks. */
bool job_query(struct job *j, const struct mark *mark);

/* ---- job_message.c: the messages; the caller owns them ---- */

const char *job_state_name(const struct job *j);
const char *job_state_reason(const struct job *j); /* NULL: none */
json_t *job_message_state(struct job *j);
json_t *job_message_spark(const struct job *j); /* memory before the connection */
json_t *job_message_sample(struct job *j, uint64_t now_ns);
json_t *job_message_verdict(struct job *j, uint64_t now_ns); /* NULL until it is judged */
json_t *job_message_mark(const struct job *j, const struct mark *mark);
json_t *job_message_event(const struct job *j, uint64_t now_ns, const char *act, const char *why);
/* Of the log, as far as it can be read already. */
uint64_t job_log_readable_bytes(const struct job *j);
