/* The process that waits above a supervisor and takes over if that is killed: it ends what is left
 * of the job, or with --keep-on-exit lets it live and takes in its output. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "guard/cgroup.h"
#include "proc/procfs.h"

enum { SENTINEL_STREAMS = 3 };

/* Shared between the two by an anonymous mapping: what the sentinel must know. */
struct sentinel_note {
    char socket_folder[128];    /* of the marks socket; "" none */
    char cgroup_name[64];       /* of the job's, before it is made; "" none will be */
    struct guard_cgroup cgroup; /* the job's, by its paths */
    bool finished;              /* the job's end is written down already */
    bool keep;                  /* the job lives on */
    pid_t job;                  /* its first process; 0: not started */
    char log_name[40];          /* the file of the run folder that the output goes to; "" none */
    int stream_pair[2];         /* the supervisor puts the job's streams into [1]; -1 */
};

/* Before the fork of the supervisor. NULL: out of memory. */
struct sentinel_note *sentinel_note_new(bool keep);

/* In the supervisor: the read ends of the job's output. Copies wait in a socket, so that the job's
 * writes do not fail when we die. Nothing without KEEP. */
void sentinel_keep_streams(const struct sentinel_note *note, const int *fds, size_t count);

struct sentinel_end {
    bool is_lost;      /* the supervisor did not end by itself with status 0 */
    int ended;         /* processes that had to be ended then */
    bool was_kept;     /* the job lived on, and has ended by now */
    bool status_known; /* of the job's first process */
    int status;        /* as wait gives it */
};

/* Must be called in the parent of SUPERVISOR, a subreaper. Waits for it; if it was killed or
 * failed, ends every process it left (SIGTERM, GRACE_NS, SIGKILL), or with note->keep waits for
 * their end and adds their output to the log in LOG_DIRFD. Then removes the cgroup and the socket's
 * folder. */
void sentinel_wait(const struct proc_root *root, pid_t supervisor, uint64_t grace_ns,
                   struct sentinel_note *note, int log_dirfd, struct sentinel_end *ret);
