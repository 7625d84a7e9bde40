/* Starting the job's first process so that it finds the world as if started by hand. */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "supervise/supervisor.h"
#include "guard/cgroup.h"

/* Our ends of the job's streams; -1 where there is none. */
struct spawn_streams {
    int terminal; /* master of its pseudo terminal */
    int out, err; /* read ends of pipes; out has both where they go to one place */
};

struct spawned {
    pid_t pid;
    struct spawn_streams streams;
};

struct spawn_request {
    const struct supervisor_options *options;
    char **argv;                       /* the options' own, or with more behind it */
    const sigset_t *mask;              /* the job's signal mask */
    const struct guard_cgroup *cgroup; /* to be put into; may be guard_cgroup_none */
    int oom_score_adj;                 /* so that the kernel would pick it, not a neighbour */
};

/* The environment is the caller's. 0; or -errno of exec itself in *ret_exec_error (then 0 is
 * returned and no process is left); or -errno of ours. */
int spawn_job(const struct spawn_request *request, struct spawned *ret, int *ret_exec_error);
