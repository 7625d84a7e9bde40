/* Reduces a run to a few hundred points, for plots on a page (docs/reference/api.md, "Samples"). */
#pragma once

#include <jansson.h>

#include "run/run.h"

enum { SAMPLES_POINTS_MIN = 16, SAMPLES_POINTS_MAX = 4000 };
enum { SAMPLES_PROCESSES = 16, SAMPLES_MARKS = 2000 };

/* Returns run settings for samples_json: from FROM_NS to TO_NS (0 means the end), with at most
 * POINTS points. START_WALL_NS is the job's start, or 0 if unknown. */
struct run_settings samples_options(uint64_t start_wall_ns, uint64_t from_ns, uint64_t to_ns,
                                    uint32_t points);
/* Returns the samples as JSON, owned by the caller; NULL if out of memory. */
json_t *samples_json(const struct run *run);
