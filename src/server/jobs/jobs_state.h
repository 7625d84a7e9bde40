/* Changes of a job: durable where the disk allows, and published. Of the jobs' own files alone. */
#pragma once

#include "server/jobs/jobs_private.h"

void jobs_trouble_set(struct jobs *j, enum trouble kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void jobs_trouble_clear(struct jobs *j, enum trouble kind);
/* The wall clock as it was when we first knew of JOB, and has gone on since; never before the job's
 * last change. */
uint64_t job_now_ns(const struct job *job);
/* In memory at once; on disk now, or as soon as that can be. REASON NULL: none. */
void jobs_change(struct jobs *j, struct job *job, enum job_state state, const char *reason);
/* Only if it can be stored: false, and nothing has changed. */
bool jobs_change_first(struct jobs *j, struct job *job, enum job_state state);
/* The same for what a supervisor reports: on disk within a second or so. */
void jobs_change_soft(struct jobs *j, struct job *job, enum job_state state, const char *reason);
/* Ends one that was never started, and only if that can be stored: 0, and JOB is gone; or -errno.
 */
int jobs_end_queued(struct jobs *j, struct job *job, enum job_state state, const char *reason,
                    struct err *err);
/* JOB is over; takes ENDING. When it is stored JOB is gone. */
void jobs_end(struct jobs *j, struct job *job, struct job_ending *ending);
/* Tries again what could not be stored. True: something is left to do. */
bool jobs_sync_all(struct jobs *j);
void jobs_publish_job(struct jobs *j, struct job *job, bool is_change);
void jobs_publish_removed(struct jobs *j, int64_t id);
/* KIND of a supervisor's message, which is borrowed. */
void jobs_publish(struct jobs *j, enum jobs_news_kind kind, int64_t id, const json_t *message);
/* At once, unless it was just published: then within a second. */
void jobs_publish_verdict(struct jobs *j, struct job *job);
void jobs_tick_on(struct jobs *j);
