/* The file of the job's program: its path, and whether a library can be preloaded into it. */
#pragma once

#include <limits.h>

/* Searches for NAME as a shell does: 0 and the path; -ENOENT; or the error that keeps the best
 * match from being executed. */
int run_program_find(const char *name, char ret_path[PATH_MAX]);

/* Why a library built for this machine's glibc cannot be preloaded into the program at PATH, as a
 * clause ("it is a static program"); NULL: nothing prevents it. For a script, its interpreter is
 * checked. A file that cannot be read counts as allowing it. */
const char *run_program_obstacle(const char *path);
