/* The live stream: WebSocket viewers (wslay), each with what it asked for and a bounded queue. A
 * viewer that does not read costs 256 KiB and no more; of what can be replaced it gets the newest.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct http_request;
struct jobs;
struct live;
struct loop;

struct live_counts {
    unsigned viewers;
    uint64_t messages, skipped, bytes;
};

/* Listens to JOBS. MACHINE makes the machine message (the caller's document each time). -ENOENT
 * with a sentence where libwslay is not on this machine. */
typedef json_t *live_machine_fn(void *user);
int live_new(struct loop *loop, struct jobs *jobs, live_machine_fn *machine, void *user,
             unsigned viewers_max, struct live **ret, struct err *err);
void live_free(struct live *l); /* closes all with 1001 */
/* A request for /api/v1/live that was let in: checks the handshake's headers and upgrades it. */
void live_take(struct live *l, struct http_request *r);
void live_counts(const struct live *l, struct live_counts *ret);
