/* A sparkline of a run's memory: the maximum of each of at most SPARK_MAX intervals of equal
 * length. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "run/series.h"

enum { SPARK_MAX = 60 };

/* Initializes an empty series whose times begin at 0. */
void spark_init(struct series *s);
/* The intervals as a JSON array, with null for an interval without a reading; null if there are
 * none. The caller owns the result. S may be NULL. */
json_t *spark_json(const struct series *s);
/* spark_pack returns {"width_s", "bytes": [intervals]}. spark_unpack reads it back into *RET,
 * after spark_init; false, and *RET is untouched, if the document is invalid. */
json_t *spark_pack(const struct series *s);
bool spark_unpack(const json_t *doc, struct series *ret);
