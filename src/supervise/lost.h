/* Jobs that their supervisor can say nothing more of: what is said in its place, and the end of
 * what is left of a job that nobody watches any more. */
#pragma once

#include <jansson.h>
#include <stdint.h>

#include "guard/cgroup.h"
#include "guard/death.h"
#include "proc/procfs.h"

struct err;

/* --lock-fd of COMMAND, negative where there is none. It must be open, and is closed in whatever is
 * executed: a job would hold it for ever. 0 or -EBADF. */
int lost_take_lock(const char *command, int64_t lock_fd, struct err *err);
/* Whoever finds the lock held can tell by whom, and whether that one still lives: its pid alone
 * may be another's by then. */
void lost_sign_lock(const struct proc_root *root, int lock_fd);

/* `end` of run.json for a job whose supervisor is gone, for CAUSE_SUPERVISOR or CAUSE_SENTINEL. */
json_t *lost_end_json(enum cause cause, int left_behind);

/* Says in the run.json of that folder that it ended, so that nobody takes it for running. Takes
 * END. */
void lost_write(int rundir_fd, json_t *end);

/* The folders of the job's cgroup, for run.json while it runs: whoever finds it so can tell whose
 * they were. */
json_t *lost_cgroup_json(const struct guard_cgroup *g);

/* Its supervisor and its sentinel are both gone: ends its processes, removes its cgroup and its
 * sockets, and says so in run.json. RUN_DIR: the absolute path, as the job has it. A folder that is
 * not signed with FOLDER_ID (rundir_open_signed) is neither read nor written. 0 or -errno. */
int lost_end_job(const struct proc_root *root, const char *run_dir, const char *folder_id,
                 uint64_t grace_ns);
