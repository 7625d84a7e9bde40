/* Records that the supervisor of this node was killed. Normally its sentinel does so; if that was
 * killed as well, the `ebb run` of a rank does, because the other nodes wait for the end of this
 * one. A child process writes: the shared folder may hang, and the rank must not wait for it. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* Starts the child, which leaves the sentinel time to write, and ranks with a lower LOCAL_RANK.
 * Returns its pid, or 0 if there is no run folder. */
pid_t run_rank_lost_start(uint32_t local_rank);
/* Waits for the child before this rank exits, because Slurm kills what its last rank leaves. Does
 * nothing if PID is 0. */
void run_rank_lost_wait(pid_t pid);
