/* Programs that start another and wait for it: shells, torchrun, uv run, sudo, … */
#pragma once

#include <stdbool.h>

#include "proc/command.h"

/* With SUB, only that subcommand starts another. SCRIPT: written in
 * Python, so that its console script (`python /x/bin/torchrun`) and `python -m uv` count too. */
struct launcher {
    const char *name;
    const char *sub;
    bool script;
    const char *shown;
    bool ranks; /* what it starts are the ranks of one job */
};

/* NULL: it starts none. */
const struct launcher *launcher_of(const struct command *c);
