/* The sentinel is the parent of the supervisor and takes over if the supervisor is killed: it ends
 * the processes of the job, or with --keep-on-exit lets them continue and reads their output. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guard/cgroup.h"
#include "proc/procfs.h"

enum { SENTINEL_STREAMS = 3 };

/* Memory shared by supervisor and sentinel (an anonymous mapping). */
struct sentinel_note {
    char socket_folder[128]; /* folder of the marks socket; "": none */
    char cgroup_name[64];    /* name of the job's cgroup, set before the group is made; "": none */
    bool finished;           /* the job's end is in run.json */
    bool keep;               /* with --keep-on-exit: the job continues without its supervisor */
    pid_t job;               /* pid of its first process; 0: not started */
    char log_name[40];       /* the current log file in the run folder; "": none */
    int stream_pair[2];      /* the supervisor sends the job's streams to [1]; -1: not used */
};

/* To be called before the supervisor is forked. NULL: out of memory. */
struct sentinel_note *sentinel_note_new(bool keep);

/* In the supervisor: sends the read ends of the job's output to the sentinel, so that the job's
 * writes do not fail when the supervisor is killed. Does nothing unless note->keep. */
void sentinel_keep_streams(const struct sentinel_note *note, const int *fds, size_t count);

struct sentinel_end {
    bool is_lost;      /* the supervisor did not exit with status 0 */
    int ended;         /* number of the job's processes that were ended then */
    bool was_kept;     /* --keep-on-exit: the job continued, and has exited since */
    bool status_known; /* whether the next member is known */
    int status;        /* wait status of the job's first process */
};

/* To be called in the parent of SUPERVISOR, which is a subreaper. Waits for the supervisor. If it
 * was killed or failed, ends every process of the job (SIGTERM, GRACE_NS, SIGKILL), or with
 * note->keep waits for them and appends their output to the log in LOG_DIRFD. Then removes the
 * cgroup and the socket's folder. */
void sentinel_wait(const struct proc_root *root, pid_t supervisor, uint64_t grace_ns,
                   struct sentinel_note *note, int log_dirfd, struct sentinel_end *ret);
