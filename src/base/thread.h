/* Threads beside the event loop. */
#pragma once

#include <pthread.h>
#include <stddef.h>

/* Starts FN(ARG) with every signal blocked: they are for the thread of the loop. The stack has
 * STACK_BYTES, or the default size where a library's thread-local storage leaves too little of
 * that. 0 or -errno. */
int thread_start(size_t stack_bytes, void *(*fn)(void *), void *arg, pthread_t *ret);
/* A condition whose timed waits are by CLOCK_MONOTONIC. */
void thread_cond_init(pthread_cond_t *cond);
