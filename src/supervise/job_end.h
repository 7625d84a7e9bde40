/* Signals to the job, reaping, and the end of everything below. */
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
    struct guard_kill kill; /* of this segment, once it is KILLING */
    bool is_blind;          /* /proc is another namespace's: only our own child can be reached */
    char stuck[200];        /* "waiting for process …": one that SIGKILL does not end; "" none */
    uint64_t cancel_deadline_ns; /* 0: nobody has requested it */
};

int job_signals_start(struct job *j);
/* With the loop the signal mask goes back: what is still pending must not end us then. */
void job_signals_ignore(void);
/* As the operator's: to the job's process group where a terminal would do so. */
void job_signal(struct job *j, int signo);
/* What is typed at the job's terminal: once the job has exited nobody turns Ctrl-C into a signal,
 * and while it is being stopped we would not know of it. */
void job_keys(struct job *j, const char *keys, size_t len);
void job_begin_ending(struct job *j, enum job_ending how);
/* SIGTERM for those of the job that decide: not for workers, whose death would look like a crash
 * to the ones that are about to save. */
void job_term(struct job *j);
/* By request: SIGTERM as above, and after GRACE_NS SIGKILL for everything that is left. The job is
 * not started again. A second request can only shorten the wait. REASON may be "". */
void job_cancel(struct job *j, const char *reason, size_t reason_len, uint64_t grace_ns);
