/* The thread that asks a GPU driver, and the snapshot it leaves for the others. */
#include "proc/gpu.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/thread.h"

/* The thread and the owner each hold a reference; the last one frees. No driver call is made
 * under the lock, so it is only ever held for the length of a copy. */
struct gpu {
    const struct gpu_vendor *vendor;
    uint64_t period_ns;
    struct gpu_snapshot scratch; /* the thread's alone */

    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    int refs;
    bool stop;     /* the owner has gone */
    bool finished; /* the thread has closed the driver */
    int status;
    struct gpu_snapshot latest;
};

enum { FREE_GRACE_MS = 200, STACK_BYTES = 512 * 1024 };

static struct timespec time_after(uint64_t ns)
{
    uint64_t t = clock_mono_ns() + ns;
    return (struct timespec){(time_t)(t / NS_PER_S), (long)(t % NS_PER_S)};
}

static void gpu_destroy(struct gpu *g)
{
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* Drops a reference; the lock is held, and given back. */
static void unref_unlock(struct gpu *g)
{
    bool last = --g->refs == 0;
    pthread_mutex_unlock(&g->lock);
    if (last)
        gpu_destroy(g);
}

static void publish_snapshot(struct gpu *g, int status)
{
    pthread_mutex_lock(&g->lock);
    g->status = status;
    if (status == 0)
        g->latest = g->scratch;
    pthread_mutex_unlock(&g->lock);
}

/* Sleeps, and says whether to go on. */
static bool sleep_until_stop(struct gpu *g, uint64_t ns)
{
    struct timespec until = time_after(ns);
    pthread_mutex_lock(&g->lock);
    while (!g->stop && pthread_cond_timedwait(&g->changed, &g->lock, &until) != ETIMEDOUT)
        ;
    bool stop = g->stop;
    pthread_mutex_unlock(&g->lock);
    return !stop;
}

static void *gpu_thread(void *arg)
{
    struct gpu *g = arg;
    void *state = NULL;
    int r = g->vendor->open(&state);
    if (r < 0) {
        publish_snapshot(g, r);
    } else {
        do {
            memset(&g->scratch, 0, sizeof g->scratch);
            r = g->vendor->read(state, &g->scratch);
            g->scratch.t_ns = clock_mono_ns();
            publish_snapshot(g, r);
        } while (sleep_until_stop(g, g->period_ns));
        g->vendor->close(state);
    }
    pthread_mutex_lock(&g->lock);
    g->finished = true;
    pthread_cond_broadcast(&g->changed);
    unref_unlock(g);
    return NULL;
}

int gpu_new(const struct gpu_vendor *vendor, uint64_t period_ns, struct gpu **ret)
{
    if (vendor->present && !vendor->present())
        return -ENOENT;
    pthread_t thread;
    struct gpu *g = calloc(1, sizeof *g);
    if (!g)
        return -ENOMEM;
    thread_cond_init(&g->changed);
    pthread_mutex_init(&g->lock, NULL);
    g->vendor = vendor;
    g->period_ns = period_ns;
    g->refs = 2;
    g->status = -EINPROGRESS;
    int r = thread_start(STACK_BYTES, gpu_thread, g, &thread);
    if (r < 0) {
        gpu_destroy(g);
        return r;
    }
    pthread_detach(thread);
    *ret = g;
    return 0;
}

/* The grace is for the exit of the program, which would unload the driver's library under a
 * thread that is just leaving it. */
void gpu_free(struct gpu *g)
{
    if (!g)
        return;
    struct timespec until = time_after(FREE_GRACE_MS * NS_PER_MS);
    pthread_mutex_lock(&g->lock);
    g->stop = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->finished && pthread_cond_timedwait(&g->changed, &g->lock, &until) != ETIMEDOUT)
        ;
    unref_unlock(g);
}

int gpu_latest(struct gpu *g, struct gpu_snapshot *ret)
{
    if (pthread_mutex_trylock(&g->lock) != 0)
        return 0;
    bool newer = g->latest.t_ns > ret->t_ns;
    if (newer)
        *ret = g->latest;
    pthread_mutex_unlock(&g->lock);
    return newer;
}

int gpu_status(struct gpu *g)
{
    pthread_mutex_lock(&g->lock);
    int status = g->status;
    pthread_mutex_unlock(&g->lock);
    return status;
}
