/* The thread that queries a GPU driver, and the snapshot that it publishes. */
#include "proc/gpu.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/thread.h"

/* State shared by the thread and the owner. Each holds a reference; dropping the last reference
 * frees the struct. The lock is held only while a snapshot is copied, never during a driver
 * call. */
struct gpu {
    const struct gpu_vendor *vendor;
    uint64_t period_ns;
    struct gpu_snapshot scratch; /* accessed by the thread only */

    pthread_mutex_t lock; /* protects all fields below */
    pthread_cond_t changed;
    int refs;
    bool stop;     /* the owner has called gpu_free */
    bool finished; /* the thread has closed the driver */
    int status;
    struct gpu_snapshot latest;
};

enum { FREE_GRACE_MS = 200, STACK_BYTES = 512 * 1024 };

static void gpu_destroy(struct gpu *g)
{
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    free(g);
}

/* Drops a reference and releases the lock, which the caller must hold. */
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

/* Sleeps for NS nanoseconds. Returns false if the thread must stop. */
static bool sleep_until_stop(struct gpu *g, uint64_t ns)
{
    struct timespec until = thread_deadline(ns);
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

/* Waits for the thread to finish, because exit() would unload the driver's library while the thread
 * is still executing code in it. */
void gpu_free(struct gpu *g)
{
    if (!g)
        return;
    struct timespec until = thread_deadline(FREE_GRACE_MS * NS_PER_MS);
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
