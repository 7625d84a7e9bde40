/* What a command line executes, with interpreters looked through. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/span.h"

enum command_form { COMMAND_PROGRAM, COMMAND_SCRIPT, COMMAND_MODULE, COMMAND_CODE, COMMAND_NONE };

struct command {
    enum command_form form;
    struct span what; /* the program's base name, the script's path, the module or the code */
    struct span rest; /* the arguments after it */
    bool python;
};

/* ARGS as in /proc/PID/cmdline: NUL between the arguments. */
void command_parse(const char *args, size_t len, struct command *ret);

/* Takes the next NUL-ended argument off *REST; false at the end. */
bool command_next(struct span *rest, struct span *ret);
struct span command_basename(struct span path);
/* "python", "python3", "python3.11t", "pypy3"; not "python-launcher" and not "pythonize". */
bool command_is_python_name(struct span name);

/* Programs that start another and wait for it: shells, torchrun, uv run, sudo, … */
struct launcher {
    const char *name;  /* "torchrun", "uv run"; NULL: the command starts no other program */
    bool starts_ranks; /* of one job */
};

struct launcher launcher_of(const struct command *c);
