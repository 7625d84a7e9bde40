/* The file of the job's program: whether it can take a preloaded library. */
#pragma once

/* Why the program at PATH will not take a preloaded library of this machine's glibc: one sentence
 * that begins with what it is ("a static program"), or NULL where nothing speaks against it. A
 * script is judged by its interpreter. What cannot be read is not spoken against. */
const char *run_program_obstacle(const char *path);
