/* State changes of jobs, which are stored and published. Used only by the files of the jobs. */
#pragma once

#include "server/jobs/jobs_private.h"

void jobs_trouble_set(struct jobs *j, enum trouble kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void jobs_trouble_clear(struct jobs *j, enum trouble kind);
/* The current wall-clock time for JOB. It is unaffected when the clock is set, and is never before
 * the job's last change. */
uint64_t job_now_ns(const struct job *job);
/* Changes the state in memory, and on disk now or as soon as possible. REASON may be NULL. */
void jobs_change(struct jobs *j, struct job *job, enum job_state state, const char *reason);
/* Changes the state and stores the change, without publishing it. Returns false, with the state
 * unchanged, if the change cannot be stored. */
bool jobs_change_first(struct jobs *j, struct job *job, enum job_state state);
/* Changes to a state that a supervisor reports. The change is on disk within about a second. */
void jobs_change_soft(struct jobs *j, struct job *job, enum job_state state, const char *reason);
/* Ends a job that was never started, if the end can be stored. Returns 0, with JOB freed, or
 * -errno. */
int jobs_end_queued(struct jobs *j, struct job *job, enum job_state state, const char *reason,
                    struct err *err);
/* Call this when JOB has ended. Frees JOB once the end is stored. */
void jobs_end(struct jobs *j, struct job *job, const struct executor_end *end);
/* Stores changes that are not on disk yet. Returns true if some changes could not be stored. */
bool jobs_sync_all(struct jobs *j);
void jobs_publish_job(struct jobs *j, struct job *job, bool is_change);
void jobs_publish_removed(struct jobs *j, int64_t id);
/* Publishes a message from a supervisor. The caller keeps MESSAGE. */
void jobs_publish(struct jobs *j, enum jobs_news_kind kind, int64_t id, const json_t *message);
/* Publishes JOB now or, if it was published just before, within a second. */
void jobs_publish_verdict(struct jobs *j, struct job *job);
void jobs_tick_on(struct jobs *j);
