/* Ending processes of the job and no others: by pidfd, checked against (pid, start time) or
 * against being our own descendant. The only code that signals what it did not start itself. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proc/procfs.h"
#include "proc/sample.h"

/* Where /proc is of another pid namespace (proc_root_is_foreign) its numbers would name strangers:
 * nothing is signalled then, and all of these return -EXDEV at once. A caller that knows a child
 * of its own can still end that one by kill(). */

/* Signals exactly that process: 0, -ESRCH when it is gone or its pid belongs to another by now. */
int guard_signal(const struct proc_root *root, const struct process_id *id, int signo);

/* Signals every living descendant of PARENT (not itself); with PGRP above 0 only those of that
 * process group. Only the caller or a child of it may be PARENT, so that what is below is ours.
 * Returns how many were signalled. */
int guard_signal_below(const struct proc_root *root, int32_t parent, int32_t pgrp, int signo);

/* SIGKILLs everything below the calling process, which must be a subreaper, in quick rounds until
 * REAP says that no child is left or UNTIL_NS has come. REAP takes in the dead (it is the caller's
 * business to keep their statuses) and returns whether any child is left. 0, also when time was up;
 * with -EXDEV it has been called once. */
typedef bool guard_reap_fn(void *user);
int guard_kill_below(const struct proc_root *root, uint64_t until_ns, guard_reap_fn *reap,
                     void *user);

/* Ends everything below the calling process, which must be a subreaper: SIGTERM, up to GRACE_NS,
 * then SIGKILL again and again until no child is left. Reaps. Returns how many got SIGTERM, or
 * -EXDEV. */
int guard_end_all(const struct proc_root *root, uint64_t grace_ns);
