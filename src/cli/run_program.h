/* The file of the job's program: where it is, and whether it can take a preloaded library. */
#pragma once

#include <limits.h>

/* As a shell looks for NAME: 0 and the path, -ENOENT, or why the best match cannot be executed. */
int run_program_find(const char *name, char ret_path[PATH_MAX]);

/* Why the program at PATH will not take a preloaded library of this machine's glibc: one sentence
 * that begins with what it is ("a static program"), or NULL where nothing prevents it. A
 * script is judged by its interpreter. What cannot be read is taken to allow it. */
const char *run_program_obstacle(const char *path);
