/* The table's numbers in words: why something was not recorded, what is with Python, what it cost.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct profile_cost;

/* "the tree of stacks is nearly full: …"; NULL where there is no such key. */
const char *profile_drop_text(const char *key);
/* What the profiler says of itself: {"samples", "ends", "hook_s", "interval_bytes",
 * "base_interval_bytes", "drops", "python": {version, state, small_objects}, "used"}. */
json_t *profile_cost_json(const struct profile_cost *c);
