/* Records that the supervisor of this node was killed, because the other nodes wait for the end of
 * this node. Normally the sentinel records it. If the sentinel was killed as well, the `ebb run` of
 * a rank does. It uses a child process, because writing to a shared folder may hang, and the rank
 * must exit. */
#pragma once

#include <stdint.h>
#include <sys/types.h>

/* Starts the child. It first waits, to give the sentinel and ranks with a lower LOCAL_RANK time to
 * write. Returns its pid, or 0 if there is no run folder. */
pid_t run_rank_lost_start(uint32_t local_rank);
/* Waits for the child before this rank exits, because Slurm kills all remaining processes when the
 * last rank has exited. Does nothing if PID is 0. */
void run_rank_lost_wait(pid_t pid);
