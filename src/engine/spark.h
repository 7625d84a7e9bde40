/* The small picture of a run's memory: over the whole of it, in at most SPARK_MAX pieces of equal
 * length, which grows with it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SPARK_MAX = 60 };

struct spark {
    uint64_t width_ns; /* of a piece; 0: nothing yet */
    size_t count;
    uint64_t bytes[SPARK_MAX]; /* the largest; UINT64_MAX: not known */
};

/* T_NS from the job's start. */
void spark_add(struct spark *s, uint64_t t_ns, uint64_t bytes);
/* The pieces; null where there is none. The caller's. */
json_t *spark_json(const struct spark *s);
/* {"width_s", "bytes": [pieces]}, and from a foreign hand back again: false, and *RET is untouched,
 * where that makes no sense. */
json_t *spark_pack(const struct spark *s);
bool spark_unpack(const json_t *doc, struct spark *ret);
