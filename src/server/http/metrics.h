/* /metrics: Prometheus text 0.0.4. */
#pragma once

#include <jansson.h>
#include <stdint.h>

struct buf;
struct live_counts;

/* JOBS (borrowed): jobs_metrics; ROOM: jobs_room_json. The server's own memory, fds and start are
 * read here.
 */
uint64_t metrics_own_bytes(void); /* resident memory of this process; 0: not known */
void metrics_print(struct buf *out, const json_t *jobs, const json_t *room,
                   const struct live_counts *live, uint64_t started_wall_ns);
