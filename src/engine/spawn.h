/* Starting the job's first process so that it finds the world as if started by hand. */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "engine/supervisor.h"

/* Our ends of the job's streams; -1 where there is none. */
struct spawn_streams {
    int terminal; /* master of its pseudo terminal */
    int out, err; /* read ends of pipes */
};

struct spawned {
    pid_t pid;
    struct spawn_streams streams;
};

/* ENV: "NAME=VALUE" strings to add or replace, NULL-ended. 0; or -errno of exec itself in
 * *ret_exec_error (then 0 is returned and no process is left); or -errno of ours. */
int spawn_job(const struct supervisor_options *options, char *const *env, const sigset_t *mask,
              struct spawned *ret, int *ret_exec_error);
