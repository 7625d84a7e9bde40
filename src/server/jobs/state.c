/* The names of the states and the table of transitions. */
#include "server/jobs/state.h"

#include <errno.h>
#include <string.h>

enum {
    LIVE = 1 << JOB_RUNNING | 1 << JOB_CHECKPOINTING | 1 << JOB_STOPPING,
};

static const struct {
    const char *word;
    int next; /* bits of the states that may follow */
} states[JOB_STATES] = {
    /* A queued job that waits for another one is cancelled if that one fails. */
    [JOB_QUEUED] = {"queued", 1 << JOB_QUEUED | 1 << JOB_STARTING | 1 << JOB_FAILED |
                                  1 << JOB_CANCELLED | 1 << JOB_LOST},
    /* A job returns to queued if the server was killed before it started the job. */
    [JOB_STARTING] = {"starting", 1 << JOB_QUEUED | 1 << JOB_STARTING | LIVE | JOB_FINAL},
    [JOB_RUNNING] = {"running", LIVE | JOB_FINAL},
    [JOB_CHECKPOINTING] = {"checkpointing", LIVE | JOB_FINAL},
    /* A job that the guard restarts is `stopping` and then `running` again. */
    [JOB_STOPPING] = {"stopping", LIVE | JOB_FINAL},
    [JOB_SUCCEEDED] = {"succeeded", 0},
    [JOB_FAILED] = {"failed", 0},
    [JOB_CANCELLED] = {"cancelled", 0},
    [JOB_LOST] = {"lost", 0},
};

static bool is_state(enum job_state state)
{
    return (unsigned)state < JOB_STATES;
}

const char *job_state_word(enum job_state state)
{
    return is_state(state) ? states[state].word : "unknown";
}

int job_state_parse(const char *word, enum job_state *ret)
{
    for (unsigned i = 0; i < JOB_STATES; i++) {
        if (strcmp(word, states[i].word) == 0) {
            *ret = (enum job_state)i;
            return 0;
        }
    }
    return -EINVAL;
}

bool job_state_is_final(enum job_state state)
{
    return is_state(state) && (1 << state & JOB_FINAL) != 0;
}

bool job_state_may_follow(enum job_state from, enum job_state to)
{
    return is_state(from) && is_state(to) && (states[from].next & 1 << to) != 0;
}
