/* The end of a job's output, as text and read: what death.c makes a cause of. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "guard/death.h"

struct death_reading {
    enum death_sign sign;
    char line[DEATH_LINE]; /* without colours and control characters */
    bool child_killed;     /* the line says that a process of the job got SIGKILL */
    bool interrupted;      /* "KeyboardInterrupt" stands somewhere */
    int signalled;         /* torchrun's "got signal: N"; 0 none */
};

/* Tracebacks may be cut at the ring's start, chained ("During handling of …"), prefixed by ranks
 * ("[rank0]: …"), of exception groups, and may be followed by other output: only one near the end
 * of what was written counts. */
void death_reading_take(const struct death_tail *t, struct death_reading *ret);
