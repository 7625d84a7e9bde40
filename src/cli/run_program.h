/* Examines the file of the job's program: its path, and whether a library can be preloaded into
 * it. */
#pragma once

#include <limits.h>

/* Searches for NAME as a shell does. Returns 0 and the path, -ENOENT, or the error that prevents
 * the best match from being executed. */
int run_program_find(const char *name, char ret_path[PATH_MAX]);

/* Returns the reason why a library built for this machine's glibc cannot be preloaded into the
 * program at PATH, as a clause such as "the program is statically linked", or NULL if nothing
 * prevents preloading. For a script, checks its interpreter. If the file cannot be read, assumes
 * that preloading is possible. */
const char *run_program_obstacle(const char *path);
