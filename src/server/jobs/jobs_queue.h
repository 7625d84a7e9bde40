/* Declarations for ids, the queue, messages from supervisors, and adoption. Used only by the files
 * jobs*.c. */
#pragma once

#include "server/jobs/jobs_private.h"

/* ---- jobs_ids.c: ids are never reused ---- */

int jobs_ids_open(struct jobs *j, int state_fd, struct err *err);
/* Records in last-id that ID is used. Call this before the commit that uses ID. */
int jobs_ids_note(struct jobs *j, int64_t id, struct err *err);

/* ---- jobs_queue.c ---- */

void jobs_kick(struct jobs *j); /* checks the queue in the next round of the loop */
/* Reports a problem if the check of a run folder's name takes too long. */
void jobs_check_silence(struct jobs *j, uint64_t now_ns);
void jobs_plan(struct jobs *j);         /* updates the reason for which each queued job waits */
void jobs_start_queued(struct jobs *j); /* starts queued jobs, a few at a time */
/* Returns JOB to the queue. WHY is the temporary problem that prevented its start; NULL: an earlier
 * server was killed before it started the job. */
void jobs_requeue(struct jobs *j, struct job *job, const char *why);
void jobs_on_kick(void *user, uint64_t now_ns);
/* If the request of JOB contains no memory size, sets the memory to reserve for JOB to the peak
 * of earlier jobs of the same name. */
void jobs_learn_memory(struct jobs *j, struct job *job);
/* calls jobs_learn_memory for queued jobs named NAME */
void jobs_relearn(struct jobs *j, const char *name);
void jobs_waits_for(struct jobs *j, const struct job *job, char *ret, size_t size);

/* Call this for a job that was just submitted and queued. Returns true if the job is the next to
 * start; its state is then `starting`, and the caller must call jobs_launch once that state is on
 * disk. */
bool jobs_take_new(struct jobs *j, struct job *job, const struct job_spec *spec);
void jobs_launch(struct jobs *j, struct job *job, const struct job_spec *spec);
/* Starts a job again with the same folder, after a start that had no effect. */
void jobs_launch_again(struct jobs *j, struct job *job);
/* Checks the jobs for which JOB waits. Returns 0, 1 if JOB was cancelled and freed, or -errno. */
int jobs_settle(struct jobs *j, struct job *job);

/* ---- jobs_follow.c ---- */

/* Cancels a job that has been started. */
void jobs_ask_end(struct jobs *j, struct job *job, const char *reason, uint64_t grace_ns);

/* ---- jobs_adopt.c ---- */

int jobs_adopt(struct jobs *j, struct err *err);
void jobs_sweep_locks(struct jobs *j); /* removes locks of ended jobs */
