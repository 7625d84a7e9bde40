/* The termination log of a container (`--termination-log`), which Kubernetes shows after the
 * container has ended. The supervisor keeps the latest verdict in it, in case the kernel kills the
 * whole container. At the end, the client replaces the verdict with the summary. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct job;

enum { JOB_TERMINATION_MAX = 4096 }; /* Kubernetes reads only this many bytes */

/* Updates the log if the verdict has changed or if ten seconds have passed since the last
 * update. */
void job_termination_tick(struct job *j, uint64_t now_ns);
/* Replaces the content of the log by as many whole lines of TEXT as fit. Returns 0 or -errno. */
int job_termination_write(int fd, const char *text, size_t len);
