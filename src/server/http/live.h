/* The live stream for WebSocket viewers (wslay). Each viewer has a subscription and a bounded
 * queue. A viewer that stops reading uses at most 256 KiB of memory, because newer messages replace
 * older ones where possible. */
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

/* Creates a hub that subscribes to the changes of JOBS. MACHINE returns a new document for the
 * machine message. Returns -ENOENT if libwslay is not installed. */
typedef json_t *live_machine_fn(void *user);
int live_new(struct loop *loop, struct jobs *jobs, live_machine_fn *machine, void *user,
             unsigned viewers_max, struct live **ret, struct err *err);
void live_free(struct live *l); /* closes all viewers with code 1001 */
/* Handles an authorized request for /api/v1/live: checks the headers of the handshake and upgrades
 * the connection. */
void live_upgrade(struct live *l, struct http_request *r);
void live_counts(const struct live *l, struct live_counts *ret);
