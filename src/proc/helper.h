/* A thread for system calls that may wait for a lock of the job. The kernel reads cmdline, maps and
 * pagemap under a lock on the process's memory. The process also holds this lock while it forks or
 * unmaps memory. Among hundreds of processes that keep forking, such a call can take ten seconds or
 * more. If the supervisor made the call in its own thread, it could not kill these processes in the
 * meantime. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct proc_helper;

/* Starts the helper thread. Returns 0 or -errno. */
int proc_helper_new(struct proc_helper **ret);
/* Ends the helper thread. If a call is still running, the thread frees H when the call returns. H
 * may be NULL. */
void proc_helper_free(struct proc_helper *h);
/* Asks the helper to free MEMORY (from malloc) after the running call, which may still use MEMORY.
 * Returns true if a call is running, so that the helper now owns MEMORY. Returns false if the
 * caller must free MEMORY. The helper can own at most three blocks. */
bool proc_helper_keeps(struct proc_helper *h, void *memory);

/* Runs FN(ARG) in the helper thread, or in the caller's thread if H is NULL. Returns 0 once FN has
 * returned. Returns -EINPROGRESS if FN has not returned after a second; ARG then belongs to the
 * helper until proc_helper_is_busy returns false. Returns -EAGAIN if FN was not called, because an
 * earlier call is still running, or took so long that calls are paused. *RET_CPU_NS (RET_CPU_NS may
 * be NULL) is the CPU time of the call, or 0 if the call has not returned. */
typedef void proc_helper_fn(void *arg);
int proc_helper_call(struct proc_helper *h, proc_helper_fn *fn, void *arg, uint64_t *ret_cpu_ns);
bool proc_helper_is_busy(struct proc_helper *h);
