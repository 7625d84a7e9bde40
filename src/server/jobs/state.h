/* The states of a job, and which may follow which. */
#pragma once

#include <stdbool.h>

enum job_state {
    JOB_QUEUED,
    JOB_STARTING, /* durable before anything is started */
    JOB_RUNNING,
    JOB_CHECKPOINTING,
    JOB_STOPPING,
    JOB_SUCCEEDED,
    JOB_FAILED,
    JOB_CANCELLED,
    JOB_LOST, /* it was started, and nobody can say how it ended */
    JOB_STATES
};

/* Sets of states are bits. */
enum {
    JOB_FINAL = 1 << JOB_SUCCEEDED | 1 << JOB_FAILED | 1 << JOB_CANCELLED | 1 << JOB_LOST,
    JOB_ACTIVE = (1 << JOB_SUCCEEDED) - 1,
};

const char *job_state_word(enum job_state state);
int job_state_parse(const char *word, enum job_state *ret); /* 0 or -EINVAL */
bool job_state_is_final(enum job_state state);
/* A state may follow itself, with another reason, unless it is final: nothing follows those. */
bool job_state_may_follow(enum job_state from, enum job_state to);
