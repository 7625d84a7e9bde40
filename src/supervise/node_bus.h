/* The shared folder as the connection between a job's nodes. A thread writes this node's heartbeat
 * and reads the requests of other nodes, because a slow or hanging file system must not delay
 * sampling or the guard. Files are rewritten in place, and opened again each time they are read: on
 * NFS, a newly opened file has the latest content. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct err;
struct node_bus;

enum { NODE_ID_MAX = 32, NODE_WHY_MAX = 200 };

/* The phases of a request. The node that makes a request writes READY, GO or STOP to its file
 * `request`. Every other node answers with READY (received), ASKED (sent to its ranks), DONE or
 * FAILED. */
enum node_phase {
    NODE_NONE,
    NODE_READY,
    NODE_GO,
    NODE_ASKED,
    NODE_DONE,
    NODE_FAILED,
    NODE_STOP,
    NODE_PHASES
};

struct node_request {
    char id[NODE_ID_MAX]; /* id of the request; "" if there is no request */
    uint32_t node;        /* the node that makes the request */
    enum node_phase phase;
    char why[NODE_WHY_MAX];
};

/* The content of a heartbeat. */
struct node_beat {
    bool has_ended;
    uint32_t ranks;
    bool has_step, has_limit;
    int64_t step;
    uint64_t memory_bytes, limit_bytes;
    const char *verdict; /* word of the verdict, such as "leaking", or NULL */
};

/* The answers of the other nodes to one request. Nodes that have ended, whose heartbeat has
 * stopped, or that have no folder are not counted. */
struct node_answers {
    char id[NODE_ID_MAX];
    uint32_t others, ready, done, failed; /* ready: nodes that have sent any answer */
};

struct node_bus_options {
    int node_fd; /* folder of this node, inside the job folder; the fd is duplicated */
    uint32_t node, nodes;
    const char *host;
};

int node_bus_new(const struct node_bus_options *options, struct node_bus **ret);
/* Writes a last heartbeat, and waits at most WAIT_NS for the disk. If the disk hangs, the thread
 * keeps running. BUS may be NULL. */
void node_bus_free(struct node_bus *bus, uint64_t wait_ns);
/* Returns an fd that becomes readable when there is a new request or a new answer. */
int node_bus_event_fd(const struct node_bus *bus);

void node_bus_beat(struct node_bus *bus, const struct node_beat *beat);
void node_bus_answer(struct node_bus *bus, const char *id, enum node_phase phase);
void node_bus_request(struct node_bus *bus, const struct node_request *request);
/* From now on, reads the other nodes' answers to the request ID. If ID is "", reads no answers. */
void node_bus_follow(struct node_bus *bus, const char *id);
/* Gets the latest request of another node and the latest answers. */
void node_bus_read(struct node_bus *bus, struct node_request *ret_request,
                   struct node_answers *ret_answers);
