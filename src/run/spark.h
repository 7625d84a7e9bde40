/* A sparkline of a run's memory: at most SPARK_MAX intervals of equal length, each with its
 * maximum. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "run/series.h"

enum { SPARK_MAX = 60 };

/* Initializes an empty series whose times begin at 0. */
void spark_init(struct series *s);
/* Returns the intervals as a JSON array owned by the caller, in which an interval without a reading
 * is null. Returns JSON null if there are no intervals. S may be NULL. */
json_t *spark_json(const struct series *s);
/* spark_pack returns {"width_s", "bytes": [intervals]}. spark_unpack reads such an object into
 * *RET, which spark_init has initialized. If the object is invalid, it returns false and leaves
 * *RET unchanged. */
json_t *spark_pack(const struct series *s);
bool spark_unpack(const json_t *doc, struct series *ret);
