/* Asking processes of a run for a census. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* Asks every process that has a socket beside MARKS (the run's own) for a census, or ONLY_PID alone
 * where that is not 0, and waits for the answers. A list, one for each that was asked: `pid`, and
 * `path` of what it wrote or `error`, one sentence. Empty: nobody listens. NULL with a sentence
 * where nobody can be asked. */
json_t *census_ask(const char *marks, int32_t only_pid, uint64_t timeout_ns, struct err *err);
