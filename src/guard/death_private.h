/* What the end of a job's output tells beyond its sign. For death.c alone. */
#pragma once

#include <stdbool.h>

#include "guard/death.h"

struct death_reading {
    enum death_sign sign;
    char line[DEATH_LINE];
    bool child_killed; /* the line says that a process of the job got SIGKILL */
    bool interrupted;  /* "KeyboardInterrupt" stands somewhere */
    int signalled;     /* torchrun's "got signal: N"; 0 none */
};

void death_reading_take(const struct death_tail *t, struct death_reading *ret);
