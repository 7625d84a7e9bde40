/* The small picture of a run's memory: the largest reading of each of at most SPARK_MAX pieces of
 * equal length. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "run/series.h"

enum { SPARK_MAX = 60 };

/* An empty series to add to, of its own; the times begin at 0. */
void spark_init(struct series *s);
/* The pieces, null where one has no reading; null without any. The caller's. S may be NULL. */
json_t *spark_json(const struct series *s);
/* {"width_s", "bytes": [pieces]}, and back again into *RET (spark_init): false, and *RET is
 * untouched, where the document makes no sense. */
json_t *spark_pack(const struct series *s);
bool spark_unpack(const json_t *doc, struct series *ret);
