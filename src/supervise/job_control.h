/* The control socket, over which the job server follows a job and sends requests
 * (docs/reference/api.md). Causes no work while no client is connected. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct job;
struct job_facts;
struct job_control;
struct mark;

/* Creates the control socket in the folder of the marks socket. Does nothing if there is no marks
 * socket. */
void job_control_start(struct job *j);
void job_control_free(struct job *j);
const char *job_control_path(const struct job_control *c); /* NULL if there is no socket */
void job_control_tick(struct job *j, uint64_t now_ns);
void job_control_mark(struct job *j, const struct mark *mark);
void job_control_event(struct job *j, uint64_t now_ns, const char *act, const char *why);
void job_control_log(struct job *j); /* call this when the job has written output */
/* Carries out a request and returns the answer as a message that the caller owns. */
json_t *job_control_answer(struct job *j, const json_t *doc);
/* Call this when the state of the job may have changed. */
void job_control_state(struct job *j);

/* Answers MARK and returns true if it is a query; otherwise returns false. Queries come from the
 * job or from a command, and are not recorded. Never blocks. */
bool job_query(struct job *j, const struct mark *mark);

/* ---- job_message.c; the caller owns the returned messages ---- */

const char *job_state_name(const struct job *j);
const char *job_state_reason(const struct job *j); /* NULL if there is no reason */
json_t *job_message_state(struct job *j);
json_t *job_message_spark(const struct job *j); /* the memory of the job so far, as a time series */
json_t *job_message_sample(struct job *j, uint64_t now_ns);
/* returns NULL if there is no verdict yet */
json_t *job_message_verdict(struct job *j, uint64_t now_ns);
json_t *job_message_mark(const struct job *j, const struct mark *mark);
json_t *job_message_event(const struct job *j, uint64_t now_ns, const char *act, const char *why);
/* fills in memory, verdict and progress */
void job_facts_now(struct job *j, struct job_facts *ret);
/* Returns the number of log bytes that have been written to disk. */
uint64_t job_log_readable_bytes(const struct job *j);
