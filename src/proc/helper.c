/* Runs one call at a time in a helper thread. A mutex protects the data passed between the
 * threads. */
#include "proc/helper.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/thread.h"

enum {
    /* maximum wait of the caller: long enough for a call that first has to wait for a CPU */
    PATIENCE_S = 1,
    REST_PER_WAIT = 20,
    KEPT_MAX = 3,
    STACK_BYTES = 128 << 10,
};

struct proc_helper {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t asked, done;
    /* The mutex protects all fields below. */
    proc_helper_fn *fn; /* NULL if no call is running */
    void *arg;
    uint64_t cpu_ns;
    /* start of the current call, and the time until which new calls are rejected */
    uint64_t asked_ns, rest_ns;
    /* is_alone: the owner has called proc_helper_free, so the thread frees H */
    bool is_over, is_alone;
    void *kept[KEPT_MAX];
    size_t kept_count;
};

static void helper_destroy(struct proc_helper *h)
{
    pthread_cond_destroy(&h->done);
    pthread_cond_destroy(&h->asked);
    pthread_mutex_destroy(&h->mutex);
    for (size_t i = 0; i < h->kept_count; i++)
        free(h->kept[i]);
    free(h);
}

static void *helper_thread(void *user)
{
    struct proc_helper *h = user;
    pthread_mutex_lock(&h->mutex);
    while (!h->is_over) {
        if (!h->fn) {
            pthread_cond_wait(&h->asked, &h->mutex);
            continue;
        }
        proc_helper_fn *fn = h->fn;
        void *arg = h->arg;
        pthread_mutex_unlock(&h->mutex);
        uint64_t cpu_ns = clock_thread_cpu_ns();
        fn(arg);
        cpu_ns = clock_thread_cpu_ns() - cpu_ns;
        pthread_mutex_lock(&h->mutex);
        h->cpu_ns = cpu_ns;
        h->fn = NULL;
        const uint64_t now_ns = clock_mono_ns();
        if (now_ns - h->asked_ns > PATIENCE_S * NS_PER_S)
            h->rest_ns = now_ns + (now_ns - h->asked_ns) * REST_PER_WAIT;
        pthread_cond_signal(&h->done);
    }
    bool is_alone = h->is_alone;
    pthread_mutex_unlock(&h->mutex);
    if (is_alone)
        helper_destroy(h);
    return NULL;
}

int proc_helper_new(struct proc_helper **ret)
{
    struct proc_helper *h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    pthread_mutex_init(&h->mutex, NULL);
    pthread_cond_init(&h->asked, NULL);
    thread_cond_init(&h->done);
    int r = thread_start(STACK_BYTES, helper_thread, h, &h->thread);
    if (r < 0) {
        helper_destroy(h);
        return r;
    }
    *ret = h;
    return 0;
}

bool proc_helper_keeps(struct proc_helper *h, void *memory)
{
    if (!h)
        return false;
    pthread_mutex_lock(&h->mutex);
    bool is_busy = h->fn;
    assert((!is_busy || h->kept_count < KEPT_MAX) && "the helper keeps at most KEPT_MAX blocks");
    if (is_busy)
        h->kept[h->kept_count++] = memory;
    pthread_mutex_unlock(&h->mutex);
    return is_busy;
}

void proc_helper_free(struct proc_helper *h)
{
    if (!h)
        return;
    pthread_t thread = h->thread;
    pthread_mutex_lock(&h->mutex);
    bool is_alone = h->is_alone = h->fn;
    h->is_over = true;
    pthread_cond_signal(&h->asked);
    pthread_mutex_unlock(&h->mutex);
    if (is_alone) {
        pthread_detach(thread); /* the thread may have freed H by now */
        return;
    }
    pthread_join(thread, NULL);
    helper_destroy(h);
}

bool proc_helper_is_busy(struct proc_helper *h)
{
    if (!h)
        return false;
    pthread_mutex_lock(&h->mutex);
    bool is_busy = h->fn || clock_mono_ns() < h->rest_ns;
    pthread_mutex_unlock(&h->mutex);
    return is_busy;
}

int proc_helper_call(struct proc_helper *h, proc_helper_fn *fn, void *arg, uint64_t *ret_cpu_ns)
{
    const uint64_t now_ns = clock_mono_ns();
    const struct timespec until = thread_deadline(PATIENCE_S * NS_PER_S);
    const uint64_t cpu_ns = clock_thread_cpu_ns();
    uint64_t ignored, *cost_ns = ret_cpu_ns ? ret_cpu_ns : &ignored;
    if (!h) {
        fn(arg);
        *cost_ns = clock_thread_cpu_ns() - cpu_ns;
        return 0;
    }
    *cost_ns = 0;
    pthread_mutex_lock(&h->mutex);
    int r = h->fn || now_ns < h->rest_ns ? -EAGAIN : 0;
    if (r == 0) {
        h->asked_ns = now_ns;
        h->fn = fn;
        h->arg = arg;
        pthread_cond_signal(&h->asked);
        while (h->fn && r == 0)
            if (pthread_cond_timedwait(&h->done, &h->mutex, &until) == ETIMEDOUT && h->fn)
                r = -EINPROGRESS;
        if (r == 0)
            *cost_ns = h->cpu_ns;
    }
    pthread_mutex_unlock(&h->mutex);
    return r;
}
