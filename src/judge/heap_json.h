/* A profile as JSON, in one form everywhere: `ebb heap --json`, the summary, reports. Views make
 * their text of it. docs/heap.md. */
#pragma once

#include <jansson.h>
#include <stddef.h>

#include "profile/growth.h"
#include "profile/names.h"
#include "profile/profile.h"

/* {"pid", "live": {bytes, low, high}, "allocated_bytes", "span_s", "steps": {first, last} | null,
 * "rows": [TOP of them], "row_count", "cost"}. A frame is "own" if it is of the user's own files. A
 * row's "where" is the line that allocates, "in_program" the innermost frame of the user's own
 * files (null: none), "callers" the frames of these that called it, at most three; a row of several
 * lines has "place_count" and of those that grew most "places": [{where, growth_bytes,
 * live_bytes}]. Each row has its whole stack, innermost first, where STACKS. NULL: out of memory.
 */
json_t *heap_growth_json(const struct profile *p, struct names *names, const struct growth *g,
                         size_t top, bool stacks);
/* What lives as a tree from the outermost frame: {"function", …, "live_bytes", "own_bytes",
 * "children": […]}, the largest first. What is below MIN_FRACTION of the whole is left out, and
 * told as "left_out_bytes". */
json_t *heap_tree_json(const struct profile *p, struct names *names, double min_fraction);
