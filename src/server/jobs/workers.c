/* A small pool of threads, which are created when they are needed. */
#include "server/jobs/workers.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/queue.h>
#include <time.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/loop.h"
#include "base/thread.h"

enum {
    WORKERS_MAX = 8, /* so many folders can hang before others have to wait */
    WORKER_STACK_BYTES = 1 << 20,
    WORKERS_JOIN_S = 2, /* longest wait for a thread at the end */
};

struct work {
    TAILQ_ENTRY(work) link; /* in the queue, or in the list of finished work */
    LIST_ENTRY(work) timed_link;
    struct workers *workers;
    const struct work_kind *kind;
    void *user;
    int64_t key; /* 0: none */
    bool is_cancelled;
    uint64_t until_ns; /* UINT64_MAX: no time limit */
};

TAILQ_HEAD(work_list, work);

struct workers {
    struct loop *loop;
    int event_fd; /* eventfd that is readable when work has been finished */
    struct loop_source *source, *timer;
    LIST_HEAD(, work) timed; /* work with a time limit that has not passed */
    pthread_t threads[WORKERS_MAX];
    size_t thread_count;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    struct work_list queue, finished;
    int64_t busy[WORKERS_MAX]; /* keys of the work that runs, by thread; 0: none */
    size_t started;            /* number of threads that have taken their place in busy */
    size_t queued, idle;       /* length of the queue, and number of threads that wait for work */
    bool is_stopped;
};

/* ---- the threads ---- */

static bool is_key_busy(const struct workers *w, int64_t key)
{
    bool is_busy = false;
    for (size_t i = 0; key && i < WORKERS_MAX; i++)
        is_busy = is_busy || w->busy[i] == key;
    return is_busy;
}

static struct work *next_work(const struct workers *w)
{
    struct work *work;
    TAILQ_FOREACH(work, &w->queue, link)
    {
        if (!is_key_busy(w, work->key))
            break;
    }
    return work;
}

static void *be_worker(void *user)
{
    const uint64_t one = 1;
    struct workers *w = user;
    struct work *work;
    pthread_mutex_lock(&w->lock);
    int64_t *key = &w->busy[w->started++];
    for (;;) {
        w->idle++;
        while (!(work = next_work(w)) && !w->is_stopped)
            pthread_cond_wait(&w->changed, &w->lock);
        w->idle--;
        if (!work)
            break;
        TAILQ_REMOVE(&w->queue, work, link);
        w->queued--;
        *key = work->key;
        pthread_mutex_unlock(&w->lock);
        work->kind->run(work->user);
        pthread_mutex_lock(&w->lock);
        *key = 0;
        TAILQ_INSERT_TAIL(&w->finished, work, link);
        (void)!write(w->event_fd, &one, sizeof one);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- the loop ---- */

static void set_limit_timer(struct workers *w)
{
    uint64_t next_ns = UINT64_MAX;
    const struct work *work;
    LIST_FOREACH(work, &w->timed, timed_link)
    {
        next_ns = work->until_ns < next_ns ? work->until_ns : next_ns;
    }
    if (next_ns == UINT64_MAX)
        loop_disarm_timer(w->timer);
    else
        loop_set_timer(w->timer, next_ns, 0);
}

static void forget_limit(struct work *work)
{
    if (work->until_ns != UINT64_MAX)
        LIST_REMOVE(work, timed_link);
    work->until_ns = UINT64_MAX;
}

static void work_free(struct work *work)
{
    forget_limit(work);
    work->kind->free(work->user);
    free(work);
}

static void on_finished(void *user, int fd, uint32_t events)
{
    struct workers *w = user;
    struct work *work;
    uint64_t count;
    (void)events;
    (void)!read(fd, &count, sizeof count);
    for (;;) { /* `done` may start and cancel work */
        pthread_mutex_lock(&w->lock);
        if ((work = TAILQ_FIRST(&w->finished)))
            TAILQ_REMOVE(&w->finished, work, link);
        pthread_mutex_unlock(&w->lock);
        if (!work)
            return;
        if (!work->is_cancelled && work->kind->done)
            work->kind->done(work->user, 0);
        work_free(work);
    }
}

/* Removes work that no thread has begun. */
static bool work_unqueue(struct work *work)
{
    struct workers *w = work->workers;
    struct work *queued;
    pthread_mutex_lock(&w->lock);
    TAILQ_FOREACH(queued, &w->queue, link)
    {
        if (queued == work)
            break;
    }
    if (queued) {
        TAILQ_REMOVE(&w->queue, work, link);
        w->queued--;
    }
    pthread_mutex_unlock(&w->lock);
    return queued;
}

void work_cancel(struct work *work)
{
    if (!work || work->is_cancelled)
        return;
    work->is_cancelled = true;
    forget_limit(work);
    if (work_unqueue(work))
        work_free(work);
}

static void on_work_limit(void *user, uint64_t now_ns, uint64_t missed)
{
    struct workers *w = user;
    struct work *work;
    (void)missed;
    for (;;) { /* `done` may start and cancel work */
        LIST_FOREACH(work, &w->timed, timed_link)
        {
            if (work->until_ns <= now_ns)
                break;
        }
        if (!work)
            break;
        work->is_cancelled = true;
        forget_limit(work);
        if (work->kind->done)
            work->kind->done(work->user, -ETIMEDOUT);
        if (work_unqueue(work))
            work_free(work);
    }
    set_limit_timer(w);
}

/* Creates another thread if there are too few. Returns -errno if there is none at all. */
static int add_thread(struct workers *w)
{
    if (w->queued <= w->idle || w->thread_count == WORKERS_MAX)
        return 0;
    int r = thread_start(WORKER_STACK_BYTES, be_worker, w, &w->threads[w->thread_count]);
    if (r == 0)
        w->thread_count++;
    return w->thread_count ? 0 : r;
}

int workers_start(struct workers *w, const struct work_kind *kind, int64_t key, uint64_t limit_ns,
                  void *user, struct work **ret)
{
    struct work *work = calloc(1, sizeof *work);
    if (!work) {
        kind->free(user);
        return -ENOMEM;
    }
    *work =
        (struct work){.workers = w, .kind = kind, .user = user, .key = key, .until_ns = UINT64_MAX};
    pthread_mutex_lock(&w->lock);
    TAILQ_INSERT_TAIL(&w->queue, work, link);
    w->queued++;
    int r = add_thread(w);
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (r < 0) {
        work_cancel(work);
        return r;
    }
    if (limit_ns) {
        work->until_ns = clock_mono_ns() + limit_ns;
        LIST_INSERT_HEAD(&w->timed, work, timed_link);
        set_limit_timer(w);
    }
    if (ret)
        *ret = work;
    return 0;
}

/* ---- start and end ---- */

int workers_new(struct loop *loop, struct workers **ret)
{
    struct workers *w = calloc(1, sizeof *w);
    if (!w)
        return -ENOMEM;
    w->loop = loop;
    TAILQ_INIT(&w->queue);
    TAILQ_INIT(&w->finished);
    pthread_mutex_init(&w->lock, NULL);
    thread_cond_init(&w->changed);
    w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int r = w->event_fd < 0 ? -errno : 0;
    if (r == 0)
        r = loop_add_fd(loop, w->event_fd, EPOLLIN, on_finished, w, &w->source);
    if (r == 0)
        r = loop_add_timer(loop, UINT64_MAX / 2, 0, on_work_limit, w, &w->timer);
    if (r < 0)
        workers_free(w);
    else
        *ret = w;
    return r;
}

static bool join_threads(struct workers *w)
{
    struct timespec until;
    bool is_joined = true;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += WORKERS_JOIN_S;
    for (size_t i = 0; i < w->thread_count; i++)
        is_joined = pthread_timedjoin_np(w->threads[i], NULL, &until) == 0 && is_joined;
    return is_joined;
}

static void free_list(struct work_list *list)
{
    struct work *work;
    while ((work = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, work, link);
        work_free(work);
    }
}

bool workers_free(struct workers *w)
{
    struct work_list queue = TAILQ_HEAD_INITIALIZER(queue);
    if (!w)
        return true;
    loop_remove(w->source);
    loop_remove(w->timer);
    pthread_mutex_lock(&w->lock);
    w->is_stopped = true;
    TAILQ_CONCAT(&queue, &w->queue, link);
    pthread_cond_broadcast(&w->changed);
    pthread_mutex_unlock(&w->lock);
    free_list(&queue);
    if (!join_threads(w))
        return false;
    free_list(&w->finished);
    close_fd(&w->event_fd);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return true;
}
