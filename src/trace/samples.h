/* A recording in a few hundred points: what a page draws (docs/api.md, "Samples"). */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

struct trace_reader;

enum { SAMPLES_POINTS_MIN = 16, SAMPLES_POINTS_MAX = 4000 };
enum { SAMPLES_PROCESSES = 16, SAMPLES_MARKS = 2000 };

struct samples_options {
    uint64_t t0_wall_ns; /* the job's start, from which times count; 0: the recording's */
    uint64_t from_ns;
    uint64_t to_ns; /* UINT64_MAX: to the end */
    size_t points;  /* buckets of time at most */
};

/* Reads R, fresh, to the end of what is there. One pass; memory is bounded by the points and the
 * number of processes that matter, not by the recording. The caller owns the document. 0, -errno of
 * the reader, or -ENOMEM. */
int samples_read(struct trace_reader *r, const struct samples_options *options, json_t **ret);
