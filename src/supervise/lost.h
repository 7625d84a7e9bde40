/* Cleans up after a job whose supervisor was killed: records in run.json how the job ended, and
 * removes its processes, cgroup and sockets. */
#pragma once

#include <stdint.h>

#include "guard/death.h"
#include "proc/procfs.h"
#include "run/outcome.h"

struct err;

/* Checks LOCK_FD, the value of --lock-fd (negative if not given). Makes the fd close-on-exec, so
 * that the job does not inherit the lock. Returns 0 or -EBADF. */
int lost_take_lock(int64_t lock_fd, struct err *err);
/* Writes our pid and start time into the lock file. The start time distinguishes the lock holder
 * from a later process with the same pid. */
void lost_sign_lock(const struct proc_root *root, int lock_fd);

/* Returns what run.json contains as the end of a job, for CAUSE_SUPERVISOR or CAUSE_SENTINEL. The
 * result refers only to constants, so it need not be freed. */
struct outcome_end lost_end(enum cause cause, int left_behind);
/* Writes END to run.json in the folder RUNDIR_FD. Does nothing if the fd is -1. */
void lost_write(int rundir_fd, const struct outcome_end *end);

/* Call this after both supervisor and sentinel were killed. Ends the job's processes, removes its
 * cgroup and sockets, and records in run.json how the job ended. RUN_DIR is the absolute path of
 * the run folder, as in the job's environment. Acts only on a folder that is signed with FOLDER_ID
 * (rundir_open_signed). Returns 0 or -errno. */
int lost_end_job(const struct proc_root *root, const char *run_dir, const char *folder_id,
                 uint64_t grace_ns);
