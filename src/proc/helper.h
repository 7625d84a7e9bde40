/* A thread for system calls that may wait for a lock of the job's. The kernel reads cmdline, maps
 * and pagemap under the lock of the process's memory, which the process itself holds while it forks
 * or unmaps. Among hundreds of processes that fork without end such a call takes ten seconds and
 * more, in which a supervisor that made it itself could not end them. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct proc_helper;

/* 0 or -errno. */
int proc_helper_new(struct proc_helper **ret);
/* Where a call is still under way the helper goes when that returns. NULL is fine. */
void proc_helper_free(struct proc_helper *h);
/* For a caller that is about to free MEMORY (of malloc), which a call uses: while a call is under
 * way, the helper frees it when it ends, and this is true. For three blocks at most. */
bool proc_helper_keeps(struct proc_helper *h, void *memory);

/* Runs FN(ARG) in the helper, or here where H is NULL. 0: it has returned. -EINPROGRESS: it has
 * not, after a second; ARG is the helper's until proc_helper_is_busy is false. -EAGAIN: an earlier
 * call has not, or took so long that none is taken for a while, and nothing was done. *RET_CPU_NS,
 * which may be NULL, is what it cost; 0 where it has not returned. */
typedef void proc_helper_fn(void *arg);
int proc_helper_call(struct proc_helper *h, proc_helper_fn *fn, void *arg, uint64_t *ret_cpu_ns);
bool proc_helper_is_busy(struct proc_helper *h);
