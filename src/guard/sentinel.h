/* The process that waits above a supervisor and cleans up if that is killed. */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "proc/procfs.h"

/* Shared between the two by an anonymous mapping: what to remove should the supervisor not. */
struct sentinel_note {
    char socket_folder[128]; /* of the marks socket; "" none */
    bool finished;           /* the job's end is written down already */
};

/* Must be called in the parent of SUPERVISOR, a subreaper. Waits for it; if it was killed or
 * failed, ends every process it left (SIGTERM, GRACE_NS, SIGKILL) and removes the socket folder.
 * Returns 0 if the supervisor ended by itself with status 0, else how many processes had to be
 * ended + 1. */
int sentinel_wait(const struct proc_root *root, pid_t supervisor, uint64_t grace_ns,
                  const struct sentinel_note *note);
