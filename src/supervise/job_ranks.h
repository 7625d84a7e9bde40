/* The ranks of a node. The supervisor samples, judges and guards them all, but does not start them.
 * Each is a child of its own `ebb run`, which receives the rank's environment from the supervisor
 * and reports the rank's start and end. */
#pragma once

#include <stdint.h>

struct job;
struct job_ranks;

/* Accepts ranks from now on. Returns 0 or -errno. */
int job_ranks_start(struct job *j);
void job_ranks_free(struct job *j);
/* Prints a sentence through the `ebb run` of the first rank. */
void job_ranks_say(struct job *j, const char *sentence);
void job_ranks_kill(struct job *j);
/* Returns the number of the first rank on this node, whose steps are used as the job's steps.
 * Returns 0 if the supervisor started the job itself. */
int64_t job_ranks_first(const struct job *j);
/* Returns the wait status of the first rank that failed, or 0 if none failed. */
int job_ranks_status(const struct job *j);
/* Lets the last `ebb run` of the node exit. Call this when run.json contains the end of the
 * node. */
void job_ranks_finished(struct job *j);
