/* The sentinel is the parent of the supervisor. If the supervisor is killed, the sentinel ends the
 * job's processes. With --keep-on-exit, the sentinel instead lets the job continue and reads its
 * output. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guard/cgroup.h"
#include "proc/procfs.h"

enum { SENTINEL_STREAMS = 3 };

/* Memory shared by the supervisor and the sentinel (an anonymous mapping). */
struct sentinel_note {
    char socket_folder[128];        /* folder of the marks socket, or "" */
    char cgroup[GUARD_CGROUP_PATH]; /* folder of the job's cgroup, or "" */
    bool finished;                  /* the end of the job is already in run.json */
    bool keep;         /* --keep-on-exit: the job continues if its supervisor is killed */
    pid_t job;         /* pid of the job's first process; 0 if it has not started */
    char log_name[40]; /* name of the current log file in the run folder, or "" */
    /* A socket pair: the supervisor sends the fds of the job's output streams to [1], and the
     * sentinel reads them from [0]. -1 if not used. */
    int stream_pair[2];
};

/* Call this before the supervisor is forked. Returns NULL if out of memory. */
struct sentinel_note *sentinel_note_new(bool keep);

/* If note->keep is set, sends the read ends of the job's output pipes from the supervisor to the
 * sentinel. The job's writes then do not fail when the supervisor is killed. */
void sentinel_keep_streams(const struct sentinel_note *note, const int *fds, size_t count);

struct sentinel_end {
    bool is_lost; /* the supervisor did not exit with status 0 */
    int ended;    /* number of processes to which the sentinel sent SIGTERM */
    /* --keep-on-exit: the job continued after the supervisor's death, and has exited by now */
    bool was_kept;
    bool status_known;
    int status; /* wait status of the job's first process */
};

/* Waits for SUPERVISOR. Called in its parent, which is a subreaper. If the supervisor was killed or
 * failed, ends every process of the job (SIGTERM, a wait of GRACE_NS, SIGKILL). With note->keep,
 * waits for these processes instead and appends their output to the log in LOG_DIRFD. At the end,
 * removes the cgroup and the socket's folder. */
void sentinel_wait(const struct proc_root *root, pid_t supervisor, uint64_t grace_ns,
                   struct sentinel_note *note, int log_dirfd, struct sentinel_end *ret);
