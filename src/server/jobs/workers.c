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
#include "base/loop.h"
#include "base/thread.h"

enum {
    WORKERS_MAX = 8, /* this many folders can hang before requests for other folders have to wait */
    WORKER_STACK_BYTES = 1 << 20,
    WORKERS_JOIN_S = 2, /* maximum time that workers_free waits for the threads */
};

struct task {
    TAILQ_ENTRY(task) link; /* in the queue, or in the list of finished tasks */
    struct workers *workers;
    const struct task_kind *kind;
    void *user;
    int64_t key; /* 0: none */
    bool is_cancelled;
};

TAILQ_HEAD(task_list, task);

struct workers {
    struct loop *loop;
    int event_fd; /* eventfd that is readable when a task has finished */
    struct loop_source *source;
    pthread_t threads[WORKERS_MAX];
    size_t thread_count;
    pthread_mutex_t lock; /* protects the members below */
    pthread_cond_t changed;
    struct task_list queue, finished;
    int64_t busy[WORKERS_MAX]; /* keys of the running tasks, by thread; 0: none */
    size_t started;            /* number of threads that have an entry in `busy` */
    size_t queued, idle;       /* length of the queue, and number of threads that wait for tasks */
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

static struct task *next_task(const struct workers *w)
{
    struct task *task;
    TAILQ_FOREACH(task, &w->queue, link)
    {
        if (!is_key_busy(w, task->key))
            break;
    }
    return task;
}

static void *be_worker(void *user)
{
    const uint64_t one = 1;
    struct workers *w = user;
    struct task *task;
    pthread_mutex_lock(&w->lock);
    int64_t *key = &w->busy[w->started++];
    for (;;) {
        w->idle++;
        while (!(task = next_task(w)) && !w->is_stopped)
            pthread_cond_wait(&w->changed, &w->lock);
        w->idle--;
        if (!task)
            break;
        TAILQ_REMOVE(&w->queue, task, link);
        w->queued--;
        *key = task->key;
        pthread_mutex_unlock(&w->lock);
        task->kind->run(task->user);
        pthread_mutex_lock(&w->lock);
        *key = 0;
        TAILQ_INSERT_TAIL(&w->finished, task, link);
        (void)!write(w->event_fd, &one, sizeof one);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

/* ---- the loop ---- */

static void task_free(struct task *task)
{
    task->kind->free(task->user);
    free(task);
}

static void on_finished(void *user, int fd, uint32_t events)
{
    struct workers *w = user;
    struct task *task;
    uint64_t count;
    (void)events;
    (void)!read(fd, &count, sizeof count);
    for (;;) { /* `done` may start and cancel tasks */
        pthread_mutex_lock(&w->lock);
        if ((task = TAILQ_FIRST(&w->finished)))
            TAILQ_REMOVE(&w->finished, task, link);
        pthread_mutex_unlock(&w->lock);
        if (!task)
            return;
        if (!task->is_cancelled)
            task->kind->done(task->user);
        task_free(task);
    }
}

/* Removes a task from the queue. Returns false if a thread has already begun it. */
static bool task_unqueue(struct task *task)
{
    struct workers *w = task->workers;
    struct task *queued;
    pthread_mutex_lock(&w->lock);
    TAILQ_FOREACH(queued, &w->queue, link)
    {
        if (queued == task)
            break;
    }
    if (queued) {
        TAILQ_REMOVE(&w->queue, task, link);
        w->queued--;
    }
    pthread_mutex_unlock(&w->lock);
    return queued;
}

void task_cancel(struct task *task)
{
    if (!task || task->is_cancelled)
        return;
    task->is_cancelled = true;
    if (task_unqueue(task))
        task_free(task);
}

/* Creates another thread if tasks are waiting for one. Returns -errno if there is no thread at
 * all. */
static int add_thread(struct workers *w)
{
    if (w->queued <= w->idle || w->thread_count == WORKERS_MAX)
        return 0;
    int r = thread_start(WORKER_STACK_BYTES, be_worker, w, &w->threads[w->thread_count]);
    if (r == 0)
        w->thread_count++;
    return w->thread_count ? 0 : r;
}

int workers_start(struct workers *w, const struct task_kind *kind, int64_t key, void *user,
                  struct task **ret)
{
    struct task *task = calloc(1, sizeof *task);
    if (!task) {
        kind->free(user);
        return -ENOMEM;
    }
    *task = (struct task){.workers = w, .kind = kind, .user = user, .key = key};
    pthread_mutex_lock(&w->lock);
    TAILQ_INSERT_TAIL(&w->queue, task, link);
    w->queued++;
    int r = add_thread(w);
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->lock);
    if (r < 0) {
        task_cancel(task);
        return r;
    }
    *ret = task;
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

static void free_list(struct task_list *list)
{
    struct task *task;
    while ((task = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, task, link);
        task_free(task);
    }
}

bool workers_free(struct workers *w)
{
    struct task_list queue = TAILQ_HEAD_INITIALIZER(queue);
    if (!w)
        return true;
    loop_remove(w->source);
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
