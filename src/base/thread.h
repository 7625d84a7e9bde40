/* Helpers for threads besides the event loop's. */
#pragma once

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Starts FN(ARG) with all signals blocked, as the thread of the loop handles them. The stack has
 * STACK_BYTES, or the default size if a library's thread-local storage takes up too much of that.
 * 0 or -errno. */
int thread_start(size_t stack_bytes, void *(*fn)(void *), void *arg, pthread_t *ret);
/* Initializes a condition whose timed waits use CLOCK_MONOTONIC. */
void thread_cond_init(pthread_cond_t *cond);
/* The time WAIT_NS from now, for a timed wait on such a condition. */
struct timespec thread_deadline(uint64_t wait_ns);
