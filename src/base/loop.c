/* The event loop, built on epoll. Event sources are kept in a list. A removed source is freed only
 * once no pending event can refer to it. */
#include "base/cleanup.h"
#include "base/loop.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/clock.h"

enum { BATCH = 64 };

enum source_kind { SOURCE_FD, SOURCE_TIMER, SOURCE_SIGNAL };

struct loop_source {
    struct loop *loop;
    struct loop_source *prev;
    struct loop_source *next;
    enum source_kind kind;
    /* removed while events were being dispatched; freed after the batch */
    bool is_dead;
    int fd; /* the caller's fd, or a timerfd or signalfd that the source owns */
    uint32_t wanted;
    union {
        loop_fd_fn *on_fd;
        loop_timer_fn *on_timer;
        loop_signal_fn *on_signal;
    };
    void *user;
};

struct loop {
    int epoll_fd;
    sigset_t original; /* signal mask before the first signal source was added */
    bool has_original;
    bool should_stop;
    bool has_dead;
    unsigned depth; /* dispatch nesting depth, because a callback may call loop_once */
    struct loop_source *sources;
};

int loop_new(struct loop **ret)
{
    struct loop *loop = calloc(1, sizeof *loop);
    if (!loop)
        return -ENOMEM;
    loop->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (loop->epoll_fd < 0) {
        int r = -errno;
        free(loop);
        return r;
    }
    *ret = loop;
    return 0;
}

static struct loop_source *source_new(struct loop *loop, enum source_kind kind, void *user)
{
    struct loop_source *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->loop = loop;
    s->kind = kind;
    s->fd = -1;
    s->user = user;
    return s;
}

static void source_unlink_and_free(struct loop_source *s)
{
    if (s->prev)
        s->prev->next = s->next;
    else
        s->loop->sources = s->next;
    if (s->next)
        s->next->prev = s->prev;
    free(s);
}

static int epoll_set(struct loop *loop, int op, int fd, uint32_t events, struct loop_source *s)
{
    struct epoll_event ev = {.events = events, .data.ptr = s};
    return epoll_ctl(loop->epoll_fd, op, fd, &ev) < 0 ? -errno : 0;
}

static void source_close(struct loop_source *s)
{
    if (s->kind != SOURCE_FD)
        cleanup_close(&s->fd);
}

/* Completes the creation of S: adds S to the list and to epoll, for EVENTS. R is 0, or the error
 * with which the source's fd could not be opened. On any error, frees S. */
static int source_start(struct loop_source *s, int r, uint32_t events, struct loop_source **ret)
{
    struct loop *loop = s->loop;
    if (r == 0)
        r = epoll_set(loop, EPOLL_CTL_ADD, s->fd, events, s);
    if (r < 0) {
        source_close(s);
        free(s);
        return r;
    }
    s->wanted = events;
    s->next = loop->sources;
    if (s->next)
        s->next->prev = s;
    loop->sources = s;
    if (ret)
        *ret = s;
    return 0;
}

int loop_add_fd(struct loop *loop, int fd, uint32_t epoll_events, loop_fd_fn *fn, void *user,
                struct loop_source **ret)
{
    struct loop_source *s = source_new(loop, SOURCE_FD, user);
    if (!s)
        return -ENOMEM;
    s->fd = fd;
    s->on_fd = fn;
    return source_start(s, 0, epoll_events, ret);
}

int loop_change_fd(struct loop_source *source, uint32_t epoll_events)
{
    assert(source->kind == SOURCE_FD && !source->is_dead);
    int r = epoll_set(source->loop, EPOLL_CTL_MOD, source->fd, epoll_events, source);
    if (r == 0)
        source->wanted = epoll_events;
    return r;
}

static struct timespec timespec_of(uint64_t ns)
{
    return (struct timespec){(time_t)(ns / NS_PER_S), (long)(ns % NS_PER_S)};
}

static int timer_arm(int fd, uint64_t first_ns, uint64_t period_ns)
{
    /* A timer whose FIRST_NS is in the past fires at once, then at multiples of PERIOD_NS after
     * FIRST_NS. */
    uint64_t now_ns = clock_mono_ns();
    if (period_ns > 0 && first_ns < now_ns)
        first_ns += (now_ns - first_ns) / period_ns * period_ns;
    if (first_ns == 0)
        first_ns = 1; /* a time of 0 would disarm the timer */
    struct itimerspec spec = {.it_value = timespec_of(first_ns),
                              .it_interval = timespec_of(period_ns)};
    return timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL) < 0 ? -errno : 0;
}

int loop_add_timer(struct loop *loop, uint64_t first_ns, uint64_t period_ns, loop_timer_fn *fn,
                   void *user, struct loop_source **ret)
{
    struct loop_source *s = source_new(loop, SOURCE_TIMER, user);
    if (!s)
        return -ENOMEM;
    s->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    s->on_timer = fn;
    int r = s->fd < 0 ? -errno : timer_arm(s->fd, first_ns, period_ns);
    return source_start(s, r, EPOLLIN, ret);
}

int loop_set_timer(struct loop_source *source, uint64_t first_ns, uint64_t period_ns)
{
    assert(source->kind == SOURCE_TIMER && !source->is_dead);
    return timer_arm(source->fd, first_ns, period_ns);
}

void loop_disarm_timer(struct loop_source *source)
{
    assert(source->kind == SOURCE_TIMER && !source->is_dead);
    struct itimerspec never = {0};
    /* Disarming a timerfd also discards an expiry that has not been read yet: read then returns
     * EAGAIN. */
    timerfd_settime(source->fd, 0, &never, NULL);
}

int loop_add_signal(struct loop *loop, int signo, loop_signal_fn *fn, void *user)
{
    sigset_t one, before;
    sigemptyset(&one);
    /* SIGKILL and SIGSTOP cannot be blocked, and signalfd would silently ignore them */
    if (signo == SIGKILL || signo == SIGSTOP || sigaddset(&one, signo) < 0)
        return -EINVAL;
    struct loop_source *s = source_new(loop, SOURCE_SIGNAL, user);
    if (!s)
        return -ENOMEM;
    /* a signal that arrives before the signalfd exists stays pending, because it is blocked */
    pthread_sigmask(SIG_BLOCK, &one, &before);
    s->fd = signalfd(-1, &one, SFD_NONBLOCK | SFD_CLOEXEC);
    s->on_signal = fn;
    int r = source_start(s, s->fd < 0 ? -errno : 0, EPOLLIN, NULL);
    if (r < 0) {
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return r;
    }
    if (!loop->has_original)
        loop->original = before;
    loop->has_original = true;
    return 0;
}

void loop_original_mask(const struct loop *loop, sigset_t *ret)
{
    if (loop->has_original)
        *ret = loop->original;
    else
        pthread_sigmask(SIG_SETMASK, NULL, ret);
}

void loop_remove(struct loop_source *source)
{
    if (!source || source->is_dead)
        return;
    struct loop *loop = source->loop;
    source->is_dead = true;
    epoll_set(loop, EPOLL_CTL_DEL, source->fd, 0, NULL);
    source_close(source);
    if (loop->depth > 0)
        loop->has_dead = true;
    else
        source_unlink_and_free(source);
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    assert(loop->depth == 0); /* callbacks must not free the loop */
    for (struct loop_source *s = loop->sources, *next; s; s = next) {
        next = s->next;
        source_close(s);
        free(s);
    }
    if (loop->has_original)
        pthread_sigmask(SIG_SETMASK, &loop->original, NULL);
    close(loop->epoll_fd);
    free(loop);
}

static void dispatch_timer(struct loop_source *s)
{
    uint64_t expirations = 0;
    /* EAGAIN: an earlier callback of this batch changed or disarmed the timer */
    if (read(s->fd, &expirations, sizeof expirations) != sizeof expirations || expirations == 0)
        return;
    s->on_timer(s->user, clock_mono_ns());
}

static void dispatch_signal(struct loop_source *s)
{
    struct signalfd_siginfo info;
    if (read(s->fd, &info, sizeof info) == sizeof info)
        s->on_signal(s->user, &info);
}

static void dispatch(const struct epoll_event *ev)
{
    struct loop_source *s = ev->data.ptr;
    if (s->is_dead)
        return;
    if (s->kind == SOURCE_TIMER) {
        dispatch_timer(s);
        return;
    }
    if (s->kind == SOURCE_SIGNAL) {
        dispatch_signal(s);
        return;
    }
    /* an earlier callback of this batch may have changed the events requested for this source */
    uint32_t events = ev->events & (s->wanted | EPOLLHUP | EPOLLERR);
    if (events != 0)
        s->on_fd(s->user, s->fd, events);
}

static void free_dead(struct loop *loop)
{
    for (struct loop_source *s = loop->sources, *next; s; s = next) {
        next = s->next;
        if (s->is_dead)
            source_unlink_and_free(s);
    }
    loop->has_dead = false;
}

int loop_once(struct loop *loop, int timeout_ms)
{
    struct epoll_event events[BATCH];
    int n = epoll_wait(loop->epoll_fd, events, BATCH, timeout_ms);
    if (n < 0)
        return errno == EINTR ? 0 : -errno;
    loop->depth++;
    for (int i = 0; i < n; i++)
        dispatch(&events[i]);
    loop->depth--;
    if (loop->depth == 0 && loop->has_dead)
        free_dead(loop);
    return 0;
}

int loop_run(struct loop *loop)
{
    int r = 0;
    while (r == 0 && !loop->should_stop)
        r = loop_once(loop, -1);
    loop->should_stop = false;
    return r;
}

void loop_stop(struct loop *loop)
{
    loop->should_stop = true;
}
