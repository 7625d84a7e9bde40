/* Parses a command line and finds the program, script, module or code that it executes. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/span.h"

enum command_form { COMMAND_PROGRAM, COMMAND_SCRIPT, COMMAND_MODULE, COMMAND_CODE, COMMAND_NONE };

struct command {
    enum command_form form;
    struct span what; /* base name of the program, path of the script, module name, or code */
    struct span rest; /* the arguments after WHAT */
    bool python;
};

/* Parses ARGS, which has the format of /proc/PID/cmdline: arguments separated by NUL. */
void command_parse(const char *args, size_t len, struct command *ret);

/* Removes the first argument from *REST and stores it in *RET. Returns false at the end. */
bool command_next(struct span *rest, struct span *ret);
struct span command_basename(struct span path);
/* True for "python", "python3", "python3.11t" and "pypy3", false for "python-launcher" and
 * "pythonize". */
bool command_is_python_name(struct span name);

/* If ARGS is the title of a Ray worker, such as "ray::Trainer.step", sets *ret to the actor or
 * task, including the prefix: "ray::Trainer". Ray sets the title for each call, and sets it to
 * "ray::IDLE" between calls. */
bool command_ray_title(const char *args, size_t len, struct span *ret);

/* A launcher is a program that starts another program and waits for it: a shell, torchrun, uv run,
 * sudo, … */
struct launcher {
    /* name of the launcher, such as "torchrun" or "uv run"; NULL if the command is not a
     * launcher */
    const char *name;
    bool starts_ranks; /* the launcher starts the ranks of one job */
};

struct launcher launcher_of(const struct command *c);
