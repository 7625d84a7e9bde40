/* Killing a set of processes that may be forking as fast as it can. SIGSTOP goes out until a scan
 * finds no process that the scan before it did not find: a stopped process neither forks nor frees
 * its place under a limit of processes nor takes CPU time from us. Then SIGKILL ends them all. For
 * the guard alone. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "guard/scan.h"
#include "guard/sweep.h"

/* Sets `below` of the processes to be ended. */
typedef void guard_mark_fn(const struct proc_root *root, struct scan *s, const void *user);

/* One scan of the machine and the signals that follow from it. Returns how many living processes
 * it found, or -errno; K->wait_ns is how long nothing more can be done then: 0 while new processes
 * appear, later up to a second, as they take their time to die. */
int guard_kill_scan(struct guard_kill *k, const struct proc_root *root, guard_mark_fn *mark,
                    const void *user);
/* Whether the last scan found that process. */
bool guard_kill_knows(const struct guard_kill *k, int32_t pid);
