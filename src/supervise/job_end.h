/* Signals to the job, reaping, and ending all of its processes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "guard/sweep.h"
#include "supervise/job_segment.h"

struct job;
struct loop_source;

struct job_end {
    struct loop_source *sweep_timer, *cancel_timer;
    struct guard_kill kill; /* used while the segment is KILLING */
    bool is_blind; /* /proc belongs to another pid namespace: only our own child can be signalled */
    char stuck[200]; /* "waiting for process …", for a process that survived SIGKILL; "": none */
    uint64_t cancel_deadline_ns; /* 0: not cancelled */
};

int job_signals_start(struct job *j);
/* Ignores the terminating signals: the end of the loop restores the signal mask, and pending
 * signals must not end the supervisor then. */
void job_signals_ignore(void);
/* Forwards a signal that the user sent: to the whole process group of the job if a terminal would
 * do so. */
void job_signal(struct job *j, int signo);
/* Handles keys typed at the job's terminal: after the job has exited, no terminal turns Ctrl-C into
 * a signal, and while the job is being stopped, the supervisor would not notice it. */
void job_keys(struct job *j, const char *keys, size_t len);
void job_begin_ending(struct job *j, enum job_ending how);
/* Sends SIGTERM to launchers and training processes, but not to workers: a training process that is
 * about to save would take a worker's exit for a crash. */
void job_term(struct job *j);
/* Cancels the job: SIGTERM as in job_term, and after GRACE_NS SIGKILL to all remaining processes.
 * The job is not restarted. A second request can only shorten the wait. REASON may be "". */
void job_cancel(struct job *j, const char *reason, size_t reason_len, uint64_t grace_ns);
