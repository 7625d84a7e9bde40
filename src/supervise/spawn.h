/* Starts the job's first process so that it runs as it would without ebb. */
#pragma once

#include <signal.h>
#include <sys/types.h>

#include "supervise/supervisor.h"
#include "guard/cgroup.h"

/* The supervisor's ends of the job's streams; -1 for a stream that does not exist. */
struct spawn_streams {
    int terminal; /* master of the job's pseudo-terminal */
    int out, err; /* read ends of pipes; `out` is used for both streams if they are the same file */
};

struct spawned {
    pid_t pid;
    struct spawn_streams streams;
};

struct spawn_request {
    const struct supervisor_options *options;
    char **argv;          /* the command, including --resume-args if they apply */
    const sigset_t *mask; /* the job's signal mask */
    /* cgroup in which the job starts; may be guard_cgroup_none */
    const struct guard_cgroup *cgroup;
    bool is_restart;   /* cgroup.kill may have been written for an earlier segment */
    int oom_score_adj; /* the job's oom_score_adj, which makes the OOM killer prefer the job */
};

/* Starts the job, which inherits the caller's environment. Returns 0 or -errno. If exec fails, no
 * process is left, and the function returns 0 and sets *ret_exec_error to -errno. */
int spawn_job(const struct spawn_request *request, struct spawned *ret, int *ret_exec_error);
/* Starts a process that only waits to be killed. The supervisor of a node uses it in place of a
 * job, because the ranks are not the supervisor's children. */
int spawn_holder(struct spawned *ret);

/* Returns a new array with the elements of ARGV followed by those of MORE, which may be NULL.
 * Returns NULL if out of memory. The caller frees the array. */
char **spawn_argv(char *const *argv, char *const *more);
/* Returns the arguments "/bin/sh PATH ARG…", with which a shell runs PATH if PATH is a script
 * without "#!". Returns NULL if out of memory. The caller frees the array. */
char **spawn_shell_argv(const char *path, char *const *argv);
/* Executes PATH in a child. Returns only if exec fails, with errno set. Safe after fork in a
 * multithreaded process. */
void spawn_exec(const char *path, char *const *argv, char *const *shell_argv);
