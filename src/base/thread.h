/* Helper functions for starting threads and for timed waits. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Starts FN(ARG) in a new thread with all signals blocked, because the event loop's thread handles
 * the signals. The stack size is STACK_BYTES, or the system's default if thread-local storage,
 * which is part of the stack, would use too much of STACK_BYTES. Returns 0 or -errno. */
int thread_start(size_t stack_bytes, void *(*fn)(void *), void *arg, pthread_t *ret);
/* Initializes a condition variable whose timed waits use CLOCK_MONOTONIC. */
void thread_cond_init(pthread_cond_t *cond);
/* Returns the time that is WAIT_NS from now, as a deadline for pthread_cond_timedwait on a
 * condition variable initialised by thread_cond_init. */
struct timespec thread_deadline(uint64_t wait_ns);
