/* Describes the counters and codes of the heap table in words, and converts the profiler's cost to
 * JSON. */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct profile_cost;

/* Describes one event of KIND, an enum heap_drop: "sample without a stack: …". The text also reads
 * well after a count: "3 × sample without a stack: …". */
const char *profile_drop_text(size_t kind);
/* Size of a buffer for a Python version such as "3.11.2". */
enum { PROFILE_VERSION_MAX = 24 };
char *profile_python_version(char out[PROFILE_VERSION_MAX], const struct profile_cost *c);
const char *profile_python_state(const struct profile_cost *c);
/* Returns the cost reported by the profiler: {"samples", "ends", "hook_s", "interval_bytes",
 * "base_interval_bytes", "drops", "python": {version, state, small_objects}, "used"}. */
json_t *profile_cost_json(const struct profile_cost *c);
