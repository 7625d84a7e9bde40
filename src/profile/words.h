/* The table's numbers in words: why something was not recorded, what is with Python, what it cost.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct profile_cost;

/* "the tree of stacks is nearly full: …", by enum heap_drop. */
const char *profile_drop_text(size_t kind);
/* "3.11.2", and how much of that Python is read. */
enum { PROFILE_VERSION_MAX = 24 };
char *profile_python_version(char out[PROFILE_VERSION_MAX], const struct profile_cost *c);
const char *profile_python_state(const struct profile_cost *c);
/* What the profiler says of itself: {"samples", "ends", "hook_s", "interval_bytes",
 * "base_interval_bytes", "drops", "python": {version, state, small_objects}, "used"}. */
json_t *profile_cost_json(const struct profile_cost *c);
