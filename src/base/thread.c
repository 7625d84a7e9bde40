/* Helper functions for starting threads and for timed waits. */
#include "base/thread.h"

#include <errno.h>
#include <signal.h>

#include "base/clock.h"

int thread_start(size_t stack_bytes, void *(*fn)(void *), void *arg, pthread_t *ret)
{
    sigset_t all, before;
    pthread_attr_t attr;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, stack_bytes);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int r = pthread_create(ret, &attr, fn, arg);
    if (r == EINVAL)
        r = pthread_create(ret, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return -r;
}

void thread_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

struct timespec thread_deadline(uint64_t wait_ns)
{
    uint64_t now = clock_mono_ns();
    uint64_t at = wait_ns > INT64_MAX - now ? INT64_MAX : now + wait_ns;
    return (struct timespec){.tv_sec = (time_t)(at / NS_PER_S), .tv_nsec = (long)(at % NS_PER_S)};
}
