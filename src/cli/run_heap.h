/* Whether a job's program can be profiled by a preloaded library, told before it starts. */
#pragma once

#include <stdbool.h>

/* Why the program at PATH will not take a preloaded library of this machine's glibc: one sentence
 * that begins with what it is ("a static program"), or NULL where nothing speaks against it. A
 * script is judged by its interpreter. What cannot be read is not spoken against. */
const char *run_heap_obstacle(const char *path);
