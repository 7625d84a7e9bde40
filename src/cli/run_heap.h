/* The heap profiler around a run: whether the job's program can take it, told before it starts; and
 * what it found, for the summary. */
#pragma once

#include <jansson.h>

/* Why the program at PATH will not take a preloaded library of this machine's glibc: one sentence
 * that begins with what it is ("a static program"), or NULL where nothing speaks against it. A
 * script is judged by its interpreter. What cannot be read is not spoken against. */
const char *run_heap_obstacle(const char *path);

/* Adds what grows in the heap of the run that DOC tells of, as DOC["heap"]["growing"]: call sites
 * as heap_growth_json has them, a few. Nothing where there is nothing to tell. */
void run_heap_growing(json_t *doc);
