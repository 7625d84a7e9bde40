/* The event loop, built on epoll. Sources are in a list. The loop frees a removed source only when
 * no pending event can refer to it. */
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
    /* the source was removed while events were dispatched; it is freed after the batch */
    bool is_dead;
    int fd; /* the caller's fd, or the timerfd of a timer; -1 for a signal */
    uint32_t wanted;
    int signo;
    union {
        loop_fd_fn *on_fd;
        loop_timer_fn *on_timer;
        loop_signal_fn *on_signal;
    };
    void *user;
};

struct loop {
    int epoll_fd;
    /* the signalfd, or -1 until the first signal is added; its epoll events have a NULL pointer */
    int signal_fd;
    sigset_t signals; /* signals that signal_fd delivers */
    sigset_t original;
    bool has_original;
    bool should_stop;
    bool has_dead;
    unsigned depth; /* number of nested dispatches, because a callback may call loop_once */
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
    loop->signal_fd = -1;
    sigemptyset(&loop->signals);
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

/* Adds a source at the head of the list, so that the current walk does not visit a source added by
 * a callback. */
static int source_link(struct loop_source *s, struct loop_source **ret)
{
    struct loop *loop = s->loop;
    s->next = loop->sources;
    if (s->next)
        s->next->prev = s;
    loop->sources = s;
    if (ret)
        *ret = s;
    return 0;
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

int loop_add_fd(struct loop *loop, int fd, uint32_t epoll_events, loop_fd_fn *fn, void *user,
                struct loop_source **ret)
{
    struct loop_source *s = source_new(loop, SOURCE_FD, user);
    if (!s)
        return -ENOMEM;
    int r = epoll_set(loop, EPOLL_CTL_ADD, fd, epoll_events, s);
    if (r < 0) {
        free(s);
        return r;
    }
    s->fd = fd;
    s->wanted = epoll_events;
    s->on_fd = fn;
    return source_link(s, ret);
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
    /* A timer whose start is in the past fires at once, and then at the next grid point. */
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
    int r = 0;
    s->fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
    if (s->fd < 0)
        r = -errno;
    if (r == 0)
        r = timer_arm(s->fd, first_ns, period_ns);
    if (r == 0)
        r = epoll_set(loop, EPOLL_CTL_ADD, s->fd, EPOLLIN, s);
    if (r < 0) {
        cleanup_close(&s->fd);
        free(s);
        return r;
    }
    s->wanted = EPOLLIN;
    s->on_timer = fn;
    return source_link(s, ret);
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
    /* Disarming the timer also cancels an expiry that was not read yet: reading the timerfd then
     * returns EAGAIN. */
    timerfd_settime(source->fd, 0, &never, NULL);
}

/* Makes signal_fd deliver exactly the signals in SET. Creates signal_fd if necessary. */
static int signal_fd_update(struct loop *loop, const sigset_t *set)
{
    int fd = signalfd(loop->signal_fd, set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (fd < 0)
        return -errno;
    if (loop->signal_fd < 0) {
        int r = epoll_set(loop, EPOLL_CTL_ADD, fd, EPOLLIN, NULL);
        if (r < 0) {
            close(fd);
            return r;
        }
        loop->signal_fd = fd;
    }
    loop->signals = *set;
    return 0;
}

/* Blocks the signal first, then adds it to signal_fd. A signal that arrives in between remains
 * pending. */
static int signal_capture(struct loop *loop, int signo)
{
    sigset_t one, before;
    sigemptyset(&one);
    /* SIGKILL and SIGSTOP cannot be blocked, and signalfd would silently ignore them */
    if (signo == SIGKILL || signo == SIGSTOP || sigaddset(&one, signo) < 0)
        return -EINVAL;
    int r = -pthread_sigmask(SIG_BLOCK, &one, &before);
    if (r < 0)
        return r;
    sigset_t set = loop->signals;
    sigaddset(&set, signo);
    r = signal_fd_update(loop, &set);
    if (r < 0) {
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        return r;
    }
    if (!loop->has_original)
        loop->original = before;
    loop->has_original = true;
    return 0;
}

int loop_add_signal(struct loop *loop, int signo, loop_signal_fn *fn, void *user,
                    struct loop_source **ret)
{
    struct loop_source *s = source_new(loop, SOURCE_SIGNAL, user);
    if (!s)
        return -ENOMEM;
    int r = signal_capture(loop, signo);
    if (r < 0) {
        free(s);
        return r;
    }
    s->signo = signo;
    s->on_signal = fn;
    return source_link(s, ret);
}

void loop_original_mask(const struct loop *loop, sigset_t *ret)
{
    if (loop->has_original)
        *ret = loop->original;
    else
        pthread_sigmask(SIG_SETMASK, NULL, ret);
}

/* Stops receiving SIGNO if no source of SIGNO is left, and unblocks it unless it was already
 * blocked before the first source was added. */
static void signal_release(struct loop *loop, int signo)
{
    for (const struct loop_source *s = loop->sources; s; s = s->next) {
        if (s->kind == SOURCE_SIGNAL && s->signo == signo && !s->is_dead)
            return;
    }
    sigset_t set = loop->signals;
    sigdelset(&set, signo);
    signal_fd_update(loop, &set);
    if (sigismember(&loop->original, signo) == 1)
        return;
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, signo);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL);
}

void loop_remove(struct loop_source *source)
{
    if (!source || source->is_dead)
        return;
    struct loop *loop = source->loop;
    source->is_dead = true;
    if (source->kind == SOURCE_SIGNAL)
        signal_release(loop, source->signo);
    else
        epoll_set(loop, EPOLL_CTL_DEL, source->fd, 0, NULL);
    if (source->kind == SOURCE_TIMER)
        close(source->fd);
    if (loop->depth > 0)
        loop->has_dead = true;
    else
        source_unlink_and_free(source);
}

void loop_free(struct loop *loop)
{
    if (!loop)
        return;
    assert(loop->depth == 0); /* the loop must not be freed from one of its own callbacks */
    for (struct loop_source *s = loop->sources, *next; s; s = next) {
        next = s->next;
        if (s->kind == SOURCE_TIMER)
            close(s->fd);
        free(s);
    }
    cleanup_close(&loop->signal_fd);
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

static void dispatch_signals(struct loop *loop)
{
    /* at most one batch of signals per round, so that a flood of them does not starve other
     * sources */
    for (int i = 0; i < BATCH; i++) {
        struct signalfd_siginfo info;
        if (read(loop->signal_fd, &info, sizeof info) != sizeof info)
            return;
        for (struct loop_source *s = loop->sources; s; s = s->next) {
            if (s->kind == SOURCE_SIGNAL && !s->is_dead && (uint32_t)s->signo == info.ssi_signo)
                s->on_signal(s->user, &info);
        }
    }
}

static void dispatch(struct loop *loop, const struct epoll_event *ev)
{
    struct loop_source *s = ev->data.ptr;
    if (!s) {
        dispatch_signals(loop);
        return;
    }
    if (s->is_dead)
        return;
    if (s->kind == SOURCE_TIMER) {
        dispatch_timer(s);
        return;
    }
    /* an earlier callback of this batch may have changed the events this source waits for */
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
        dispatch(loop, &events[i]);
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
