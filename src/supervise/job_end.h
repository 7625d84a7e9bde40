/* Signals the job, reaps its processes, and ends those that are left. */
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
    /* progress of killing the remaining processes, while the phase is KILLING */
    struct guard_kill kill;
    /* /proc belongs to another pid namespace, so only the job's first process, which is our child,
     * can be signalled */
    bool is_blind;
    char stuck[200]; /* "waiting for process …" if a process survived SIGKILL; otherwise "" */
    uint64_t cancel_deadline_ns; /* 0 if the job was not cancelled */
};

int job_signals_start(struct job *j);
/* Ignores terminating signals from now on. Otherwise a pending signal would kill the supervisor
 * when the loop restores the signal mask at its end. */
void job_signals_ignore(void);
/* Forwards a signal from the user to the job. Signals that a terminal sends to a whole process
 * group are sent to the job's whole process group. */
void job_signal(struct job *j, int signo);
/* Handles Ctrl-C and Ctrl-\ among typed keys while the job is being stopped or after it has exited,
 * because the terminal then no longer turns these keys into signals that the supervisor notices. */
void job_keys(struct job *j, const char *keys, size_t len);
void job_begin_ending(struct job *j, enum job_ending how);
/* Sends SIGTERM to launchers and training processes, but not to workers: a training process that is
 * about to write a checkpoint would treat the exit of a worker as a crash. */
void job_term(struct job *j);
/* Cancels the job: sends SIGTERM as job_term does, and after GRACE_NS sends SIGKILL to all
 * remaining processes. The job is not restarted. A second call can only shorten the wait. REASON
 * may be "". */
void job_cancel(struct job *j, const char *reason, size_t reason_len, uint64_t grace_ns);
