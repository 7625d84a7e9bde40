/* /metrics: Prometheus text 0.0.4. */
#pragma once

#include <stdint.h>

struct buf;
struct jobs_metrics;
struct live_counts;

uint64_t metrics_own_bytes(void); /* resident memory of this process; 0 if unknown */
/* Prints all metrics. Also reads the server's own memory, open files and start time. */
void metrics_print(struct buf *out, const struct jobs_metrics *jobs, const struct live_counts *live,
                   uint64_t started_wall_ns);
