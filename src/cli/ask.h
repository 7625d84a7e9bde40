/* Sends queries to the supervisor or the processes of a run, and binds a socket next to theirs for
 * the answer. */
#pragma once

#include <jansson.h>
#include <stdint.h>
#include <sys/un.h>

#include "base/err.h"

/* Binds a datagram socket "MARKS.WHAT-PID" for the answer, next to the run's own socket MARKS.
 * Returns its fd or -errno. The caller unlinks it. */
int ask_bind(const char *marks, const char *what, struct sockaddr_un *ret);
/* Sends QUERY ("KIND=query NAME=… ") with a REPLY line added. Returns the supervisor's answer as
 * JSON, or NULL and an error if none arrived within TIMEOUT_NS. */
json_t *ask_supervisor(const char *marks, const char *query, uint64_t timeout_ns, struct err *err);
