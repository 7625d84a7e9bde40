/* Metrics of running jobs in Prometheus text format, which is also OpenMetrics. Used by `ebb serve`
 * and `ebb run --metrics`. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct buf;
struct job_facts;

struct metrics_job {
    const char *label;   /* value of the label "job", not escaped */
    uint64_t started_ns; /* wall clock; 0 if unknown */
    const struct job_facts *facts;
};

/* Appends the lines "# HELP" and "# TYPE", which precede the samples of a metric. */
void metrics_put_head(struct buf *out, const char *name, const char *type, const char *help);
void metrics_put_jobs(struct buf *out, const struct metrics_job *jobs, size_t count);
