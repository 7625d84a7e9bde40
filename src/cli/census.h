/* The parts of `ebb census`: asking processes that listen, and what /proc tells of one. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct buf;
struct proc_root;

/* Asks every process that has a socket beside MARKS (the run's own) for a census, or ONLY_PID alone
 * where that is not 0, and waits for the answers. A list, one for each that was asked: `pid`, and
 * `path` of what it wrote or `error`, one sentence. Empty: nobody listens. NULL with a sentence
 * where nobody can be asked. */
json_t *census_ask(const char *marks, int32_t only_pid, uint64_t timeout_ns, struct err *err);

/* What /proc tells of PID: `pid`, `name`, `command`, memory by kind, `mappings`, `threads`, `fds`,
 * null where we may not read it. NULL with a sentence where there is no such process. */
json_t *census_process_json(const struct proc_root *root, int32_t pid, struct err *err);
/* The value of NAME in PID's environment as it was when its program started: a string to be freed,
 * NULL with *ret_error 0 where it is not set, or -errno where we may not know. */
char *census_environment(const struct proc_root *root, int32_t pid, const char *name,
                         int *ret_error);
/* Of the processes below PID, one that was started under ebb: its pid, or 0. What a launcher or
 * `ebb run` itself leads to. */
int32_t census_find_below(const struct proc_root *root, int32_t pid);
/* The line that starts PID's command under ebb, for a shell; false where it has none. */
bool census_start_line(const struct proc_root *root, int32_t pid, struct buf *ret);
