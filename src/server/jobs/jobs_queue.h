/* From a new job to one that is started, followed, or found again. Of the jobs' own files alone. */
#pragma once

#include "server/jobs/jobs_private.h"

/* ---- jobs_ids.c: ids never come again ---- */

int jobs_ids_open(struct jobs *j, int state_fd, struct err *err);
/* ID is about to be given; before the commit. */
int jobs_ids_note(struct jobs *j, int64_t id, struct err *err);

/* ---- jobs_queue.c ---- */

void jobs_kick(struct jobs *j);         /* the queue is looked at soon */
void jobs_plan(struct jobs *j);         /* why each of the queue waits */
void jobs_start_queued(struct jobs *j); /* starts what can be started, some at a time */
/* Nothing of it was started, for a reason that may pass: it waits again. */
void jobs_requeue(struct jobs *j, struct job *job, const char *why);
void jobs_on_kick(void *user, uint64_t now_ns, uint64_t missed);
/* What to set aside where the request does not say. */
void jobs_learn_memory(struct jobs *j, struct job *job);
void jobs_relearn(struct jobs *j, const char *name); /* of those that wait */
void jobs_waits_for(struct jobs *j, const struct job *job, char *ret, size_t size);

/* ---- those that come after others ---- */

/* A job has ended: those that come after it go on, or are cancelled, soon. */
void jobs_after_ended(struct jobs *j, int64_t id, enum job_state state);
/* Some of that; true: there is more. */
bool jobs_after_some(struct jobs *j);
/* For all that JOB comes after, by the store. False: JOB is gone. */
bool jobs_check_after(struct jobs *j, struct job *job);
void jobs_check_all_after(struct jobs *j); /* or at some: then it is still unsettled */

/* ---- jobs_follow.c: callbacks of the executor ---- */

extern const struct executor_callbacks jobs_callbacks; /* without user */
/* It was asked to end while it was starting or running. */
void jobs_ask_end(struct jobs *j, struct job *job, const char *reason, uint64_t grace_ns);

/* ---- jobs_adopt.c ---- */

int jobs_adopt(struct jobs *j, struct err *err);
void jobs_adopt_again(struct jobs *j); /* those of which nobody could say */
void jobs_sweep_locks(struct jobs *j); /* of jobs that have ended */
