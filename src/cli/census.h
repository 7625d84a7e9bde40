/* Requests a census from the processes of a run. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Requests a census from every process that has a socket next to MARKS, the run's own socket, and
 * waits for the answers. If ONLY_PID is not 0, requests it from that process only. Returns a list
 * with one object per process: `pid`, and either the `path` of its census or `error`. The list is
 * empty if no process accepts requests. Returns NULL and an error if no request could be sent. */
json_t *census_ask(const char *marks, int32_t only_pid, uint64_t timeout_ns, struct err *err);
