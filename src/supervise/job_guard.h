/* The guard of a job: what its own files share. For them alone. */
#pragma once

#include "supervise/job.h"

/* ---- job_guard_lines.c ---- */

void job_guard_find_effective(struct job *j);
void job_guard_set_lines(struct job *j, unsigned which);
void job_guard_set_own_gauge(struct job *j);
void job_guard_set_charge(struct job *j);
void job_guard_follow_members(struct job *j);
void job_guard_set_effective_gauge(struct job *j);
void job_guard_follow_effective(struct job *j);

/* ---- job_guard_note.c ---- */

void job_guard_put_event(struct job *j, uint64_t now_ns, const char *act, const char *trigger,
                         const char *why);
void job_guard_put_checkpoint(struct job *j, uint64_t now_ns);

/* ---- job_guard.c: callbacks of the loop ---- */

void job_guard_on_reflex(void *user, int fd, uint32_t events);
void job_guard_on_alert(void *user, uint64_t now_ns, uint64_t missed);
