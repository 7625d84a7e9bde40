/* Programs that start another and wait for it: shells, torchrun, uv run, sudo, … */
#pragma once

#include <stdbool.h>

#include "proc/command.h"

struct launcher {
    const char *name;  /* "torchrun", "uv run"; NULL: the command starts no other program */
    bool starts_ranks; /* of one job */
};

struct launcher launcher_of(const struct command *c);
