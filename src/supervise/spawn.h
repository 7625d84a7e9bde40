/* Starts the job's first process so that it runs as it would without ebb. */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "supervise/supervisor.h"
#include "guard/cgroup.h"

/* Our ends of the job's streams; -1: no such stream. */
struct spawn_streams {
    int terminal; /* master of its pseudo terminal */
    int out, err; /* read ends of pipes; out carries both streams if they are the same file */
};

struct spawned {
    pid_t pid;
    struct spawn_streams streams;
};

struct spawn_request {
    const struct supervisor_options *options;
    char **argv;                       /* the command, possibly with --resume-args */
    const sigset_t *mask;              /* the job's signal mask */
    const struct guard_cgroup *cgroup; /* cgroup to start it in; may be guard_cgroup_none */
    int oom_score_adj;                 /* makes the OOM killer pick the job first */
};

/* Starts the job, which inherits the caller's environment. 0 or -errno. If exec itself fails,
 * returns 0, sets *ret_exec_error to its -errno, and no process is left. */
int spawn_job(const struct spawn_request *request, struct spawned *ret, int *ret_exec_error);
