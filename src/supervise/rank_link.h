/* The connection between the supervisor of a node and the `ebb run` of one rank on it: JSON
 * messages over a Unix socket that keeps message boundaries.
 *
 *   rank → supervisor                          supervisor → rank
 *   {"hello": {"rank": 3, "local_rank": 1}}    {"env": {…}, "shim": "…", "library": "…", …}
 *   {"started": PID}                           {"say": "guard: …"}
 *   {"ended": WAIT_STATUS}                     {"bye": true, "print": …, "why": …, "status": …}
 *   {"signal": 10} */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "supervise/rank_place.h"

/* Binds the address of P and listens. A caller that succeeds must start the supervisor of this
 * node. Returns a non-blocking fd, -EADDRINUSE if there is a supervisor already, or -errno. */
int rank_link_lead(const struct rank_place *p);
/* Connects to the supervisor of this node, which must belong to the same user. Returns an fd,
 * -ECONNREFUSED if there is none, or -errno. */
int rank_link_join(const struct rank_place *p);
/* True if the process at the other end of FD belongs to this user. RET_PID may be NULL; *RET_PID is
 * 0 if the process is in another pid namespace. */
bool rank_link_is_ours(int fd, int32_t *ret_pid);
/* Sends DOC and releases it. Never blocks and never raises SIGPIPE. Returns 0 or -errno. */
int rank_link_send(int fd, json_t *doc);
/* Receives one message; waits at most TIMEOUT_MS (0: not at all). Returns 1 with a message, 0 if
 * none came, or -errno; -EPIPE if the other end has closed. Invalid messages are -EBADMSG. */
int rank_link_receive(int fd, int timeout_ms, json_t **ret);
