/* Starts the job's first process so that it runs as it would without ebb. */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "supervise/supervisor.h"
#include "guard/cgroup.h"

/* The supervisor's ends of the job's streams; -1 where there is no such stream. */
struct spawn_streams {
    int terminal; /* master of the job's pseudo terminal */
    int out, err; /* read ends of pipes; `out` has both streams if they are the same file */
};

struct spawned {
    pid_t pid;
    struct spawn_streams streams;
};

struct spawn_request {
    const struct supervisor_options *options;
    char **argv;          /* the command, possibly with --resume-args */
    const sigset_t *mask; /* the job's signal mask */
    /* cgroup in which to start the job; may be guard_cgroup_none */
    const struct guard_cgroup *cgroup;
    int oom_score_adj; /* value that makes the OOM killer pick the job first */
};

/* Starts the job, which inherits the caller's environment. Returns 0 or -errno. If exec itself
 * fails, returns 0 and sets *ret_exec_error to its -errno; no process is left then. */
int spawn_job(const struct spawn_request *request, struct spawned *ret, int *ret_exec_error);
