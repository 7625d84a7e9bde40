/* Texts for codes in the table: why data was dropped, the state of Python, the cost. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct profile_cost;

/* Returns the text of an enum heap_drop: "the tree of stacks is nearly full: …". */
const char *profile_drop_text(size_t kind);
/* The Python version, "3.11.2", and whether its frames can be read. */
enum { PROFILE_VERSION_MAX = 24 };
char *profile_python_version(char out[PROFILE_VERSION_MAX], const struct profile_cost *c);
const char *profile_python_state(const struct profile_cost *c);
/* The cost reported by the profiler: {"samples", "ends", "hook_s", "interval_bytes",
 * "base_interval_bytes", "drops", "python": {version, state, small_objects}, "used"}. */
json_t *profile_cost_json(const struct profile_cost *c);
