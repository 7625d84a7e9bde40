/* The states of a job and the allowed transitions. */
#pragma once

#include <stdbool.h>

enum job_state {
    JOB_QUEUED,
    JOB_STARTING, /* the state is stored before any process is started */
    JOB_RUNNING,
    JOB_CHECKPOINTING,
    JOB_STOPPING,
    JOB_SUCCEEDED,
    JOB_FAILED,
    JOB_CANCELLED,
    JOB_LOST, /* the job was started, but how it ended is unknown */
    JOB_STATES
};

/* Sets of states, one bit for each. */
enum {
    JOB_FINAL = 1 << JOB_SUCCEEDED | 1 << JOB_FAILED | 1 << JOB_CANCELLED | 1 << JOB_LOST,
    JOB_ACTIVE = (1 << JOB_SUCCEEDED) - 1,
};

const char *job_state_word(enum job_state state);
int job_state_parse(const char *word, enum job_state *ret); /* Returns 0 or -EINVAL */
bool job_state_is_final(enum job_state state);
/* True if TO may follow FROM. A job that is not in a final state may also keep its state and get a
 * new reason. */
bool job_state_may_follow(enum job_state from, enum job_state to);
