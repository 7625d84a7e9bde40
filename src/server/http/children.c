/* Child processes that read recordings for the server, and the cache of their answers. */
#include "server/http/children.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/queue.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/io.h"
#include "base/loop.h"

enum { ARGS_MAX = 16, STDERR_MAX = 4 << 10, PRIORITY = 10, REAP_MS = 1000 };

/* The standard output or standard error of a child. */
struct child_stream {
    struct child *child;
    int fd; /* -1: closed */
    struct loop_source *source;
    struct buf text;
    size_t max;
};

struct child_waiter {
    LIST_ENTRY(child_waiter) link;
    struct child *child;
    child_done_fn *fn;
    void *user;
};

struct child {
    TAILQ_ENTRY(child) link;
    struct children *all;
    char *key;
    uint64_t stamp;
    char *args[ARGS_MAX + 2];
    LIST_HEAD(, child_waiter) waiters;
    bool is_guest; /* true if only guests (clients other than the owner) wait for the answer */
    pid_t pid;     /* pid of the child; 0 while it is queued and not started */
    int pidfd;
    struct loop_source *pid_source, *limit;
    struct child_stream streams[2];
    /* -ETIMEDOUT or -EFBIG while the child is being killed; at the end, the status for its
     * waiters */
    int status;
};

struct children {
    struct loop *loop;
    struct children_options options;
    TAILQ_HEAD(child_list, child) pending; /* running children, followed by queued ones in order */
    struct child_list ended;               /* cached answers, most recently used first */
    unsigned running, queued;
    size_t ended_bytes;
};

static void stream_close(struct child_stream *s)
{
    loop_remove(s->source);
    s->source = NULL;
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

/* Frees everything except the child's answer. */
static void child_close(struct child *c)
{
    for (int i = 0; i < 2; i++)
        stream_close(&c->streams[i]);
    loop_remove(c->pid_source);
    loop_remove(c->limit);
    c->pid_source = c->limit = NULL;
    if (c->pidfd >= 0)
        close(c->pidfd);
    c->pidfd = -1;
    for (int i = 1; c->args[i]; i++) {
        free(c->args[i]);
        c->args[i] = NULL;
    }
}

static void child_free(struct child *c)
{
    child_close(c);
    for (int i = 0; i < 2; i++)
        buf_fini(&c->streams[i].text);
    free(c->key);
    free(c);
}

static struct child *child_find(const struct child_list *list, const char *key)
{
    struct child *c;
    TAILQ_FOREACH(c, list, link)
    {
        if (strcmp(c->key, key) == 0)
            return c;
    }
    return NULL;
}

static struct child *find_pending(const struct children *all, const char *key, uint64_t stamp)
{
    struct child *c;
    TAILQ_FOREACH(c, &all->pending, link)
    {
        if (c->stamp == stamp && strcmp(c->key, key) == 0)
            return c;
    }
    return NULL;
}

/* ---- the cache ---- */

static struct buf *child_answer(struct child *c)
{
    return &c->streams[c->streams[0].text.len ? 0 : 1].text;
}

static size_t cached_bytes(struct child *c)
{
    return sizeof *c + child_answer(c)->len;
}

static void cache_drop(struct children *all, struct child *c)
{
    TAILQ_REMOVE(&all->ended, c, link);
    all->ended_bytes -= cached_bytes(c);
    child_free(c);
}

static void cache_add(struct children *all, struct child *c)
{
    struct child *old = child_find(&all->ended, c->key);
    struct buf *text = child_answer(c);
    if (old)
        cache_drop(all, old);
    child_close(c);
    buf_str(text); /* appends a NUL */
    char *exact = text->data ? realloc(text->data, text->len + 1) : NULL;
    if (exact)
        *text = (struct buf){.data = exact, .len = text->len, .cap = text->len + 1};
    TAILQ_INSERT_HEAD(&all->ended, c, link);
    all->ended_bytes += cached_bytes(c);
    while (all->ended_bytes > all->options.cache_bytes)
        cache_drop(all, TAILQ_LAST(&all->ended, child_list));
}

/* ---- the end of a child ---- */

static void remove_pending(struct child *c)
{
    TAILQ_REMOVE(&c->all->pending, c, link);
    if (c->pid > 0)
        c->all->running--;
    else
        c->all->queued--;
}

static void start_queued(struct children *all);

/* Ends a child and calls its waiters. They may call children_ask and child_waiter_cancel, so the
 * child is removed from its list first. */
static void child_end(struct child *c, int status)
{
    struct children *all = c->all;
    struct buf *text = child_answer(c);
    remove_pending(c);
    c->status = status;
    while (!LIST_EMPTY(&c->waiters)) {
        struct child_waiter *w = LIST_FIRST(&c->waiters);
        LIST_REMOVE(w, link);
        w->fn(w->user, status, buf_str(text), text->len);
        free(w);
    }
    if (status >= 0)
        cache_add(all, c);
    else
        child_free(c);
    start_queued(all);
}

static void child_kill(struct child *c, int why)
{
    if (c->status == 0)
        c->status = why;
    /* kills the child's own process group, which exists until the child is reaped */
    kill(-c->pid, SIGKILL);
}

/* Reads output of the child. Returns true if there may be more to read. */
static bool stream_read(struct child_stream *s)
{
    char piece[16 << 10];
    ssize_t n = read(s->fd, piece, sizeof piece);
    if (n < 0)
        return errno == EINTR;
    if (n == 0) {
        stream_close(s);
        return false;
    }
    size_t room = s->max > s->text.len ? s->max - s->text.len : 0;
    buf_add(&s->text, piece, (size_t)n < room ? (size_t)n : room);
    if ((size_t)n > room && s == &s->child->streams[0])
        child_kill(s->child, -EFBIG);
    return true;
}

static void on_stream(void *user, int fd, uint32_t events)
{
    (void)fd, (void)events;
    stream_read(user);
}

static void on_child_exit(void *user, int fd, uint32_t events)
{
    (void)fd, (void)events;
    struct child *c = user;
    int status = 0;
    if (waitpid(c->pid, &status, WNOHANG) == 0)
        return;
    for (int i = 0; i < 2; i++) {
        /* the child has exited, so at most one pipe buffer of output is left */
        for (int n = 0; n < 64 && c->streams[i].fd >= 0 && stream_read(&c->streams[i]); n++)
            ;
    }
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    if (c->streams[0].text.failed || c->streams[1].text.failed)
        c->status = -ENOMEM;
    child_end(c, c->status ? c->status : code);
}

static void on_limit(void *user, uint64_t now_ns, uint64_t missed)
{
    (void)now_ns, (void)missed;
    child_kill(user, -ETIMEDOUT);
}

/* ---- the start ---- */

static int child_spawn(struct child *c, int out, int err)
{
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attr;
    sigset_t mask, defaults;
    posix_spawn_file_actions_init(&actions);
    posix_spawnattr_init(&attr);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
    loop_original_mask(c->all->loop, &mask);
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_setsigmask(&attr, &mask);
    posix_spawnattr_setsigdefault(&attr, &defaults);
    posix_spawnattr_setpgroup(&attr, 0);
    posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK |
                                        POSIX_SPAWN_SETSIGDEF);
    pid_t pid;
    int r = -posix_spawn(&pid, c->all->options.program, &actions, &attr, c->args, environ);
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attr);
    if (r < 0)
        return r;
    setpriority(PRIO_PROCESS, (id_t)pid, PRIORITY);
    c->pid = pid;
    return 0;
}

static int stream_open(struct child_stream *s, int *ret_other)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) < 0)
        return -errno;
    s->fd = fds[0];
    *ret_other = fds[1];
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    return loop_add_fd(s->child->all->loop, s->fd, EPOLLIN, on_stream, s, &s->source);
}

/* Watches for the child's exit and its time limit. A child that cannot be watched is killed. */
static int child_follow(struct child *c)
{
    struct loop *loop = c->all->loop;
    c->pidfd = io_pidfd_open(c->pid);
    int r = c->pidfd < 0 ? c->pidfd : 0;
    if (r == 0)
        r = loop_add_fd(loop, c->pidfd, EPOLLIN, on_child_exit, c, &c->pid_source);
    if (r == 0)
        r = loop_add_timer(loop, clock_mono_ns() + c->all->options.limit_ns, 0, on_limit, c,
                           &c->limit);
    if (r < 0) {
        kill(-c->pid, SIGKILL);
        waitpid(c->pid, NULL, 0);
        c->pid = 0;
    }
    return r;
}

static int child_start(struct child *c)
{
    int ends[2] = {-1, -1};
    int r = stream_open(&c->streams[0], &ends[0]);
    if (r == 0)
        r = stream_open(&c->streams[1], &ends[1]);
    if (r == 0)
        r = child_spawn(c, ends[0], ends[1]);
    for (int i = 0; i < 2; i++) {
        if (ends[i] >= 0)
            close(ends[i]);
    }
    if (r == 0)
        r = child_follow(c);
    if (r == 0) {
        c->all->running++;
        c->all->queued--;
    }
    return r;
}

/* Starts queued children. Each round begins at the head of the list, because a failed start calls
 * waiters, and these may change the list. */
static void start_queued(struct children *all)
{
    while (all->running < all->options.at_once && all->queued > 0) {
        struct child *c = TAILQ_FIRST(&all->pending);
        while (c->pid > 0)
            c = TAILQ_NEXT(c, link);
        int r = child_start(c);
        if (r < 0)
            child_end(c, r);
    }
}

/* ---- requests ---- */

static struct child *child_new(struct children *all, const char *const *argv, const char *key,
                               uint64_t stamp)
{
    struct child *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (struct child){.all = all,
                        .stamp = stamp,
                        .key = strdup(key),
                        .pidfd = -1,
                        .streams = {{.child = c, .fd = -1, .max = all->options.output_max},
                                    {.child = c, .fd = -1, .max = STDERR_MAX}}};
    c->args[0] = (char *)(uintptr_t)all->options.program;
    bool is_whole = c->key;
    for (int i = 0; i < ARGS_MAX && argv[i] && is_whole; i++)
        is_whole = (c->args[i + 1] = strdup(argv[i])) != NULL;
    if (is_whole)
        return c;
    child_free(c);
    return NULL;
}

static bool queue_has_room(const struct children *all, bool is_guest)
{
    unsigned guests = 0;
    struct child *c;
    TAILQ_FOREACH(c, &all->pending, link)
    {
        guests += c->pid == 0 && c->is_guest;
    }
    return all->running < all->options.at_once ||
           (all->queued < all->options.queue_max &&
            (!is_guest || guests < (all->options.queue_max + 1) / 2));
}

/* Queues a child. Children for guests come after all others. */
static void enqueue(struct child *c, bool is_guest)
{
    struct child_list *list = &c->all->pending;
    struct child *at = TAILQ_FIRST(list);
    c->is_guest = is_guest;
    while (at && (is_guest || at->pid > 0 || !at->is_guest))
        at = TAILQ_NEXT(at, link);
    if (at)
        TAILQ_INSERT_BEFORE(at, c, link);
    else
        TAILQ_INSERT_TAIL(list, c, link);
    c->all->queued++;
}

static int find_or_enqueue(struct children *all, const char *const *argv, const char *key,
                           uint64_t stamp, bool is_guest, struct child **ret)
{
    struct child *c = find_pending(all, key, stamp);
    if (!c) {
        if (!queue_has_room(all, is_guest))
            return -EAGAIN;
        c = child_new(all, argv, key, stamp);
        if (!c)
            return -ENOMEM;
        enqueue(c, is_guest);
    } else if (c->pid == 0 && c->is_guest && !is_guest) {
        remove_pending(c);
        enqueue(c, false);
    }
    *ret = c;
    return 0;
}

int children_ask(struct children *all, const char *const *argv, const char *key, uint64_t stamp,
                 bool is_guest, child_done_fn *fn, void *user, struct child_waiter **ret)
{
    struct child *c = child_find(&all->ended, key);
    *ret = NULL;
    if (c && c->stamp == stamp) {
        TAILQ_REMOVE(&all->ended, c, link);
        TAILQ_INSERT_HEAD(&all->ended, c, link);
        fn(user, c->status, buf_str(child_answer(c)), child_answer(c)->len);
        return 0;
    }
    struct child_waiter *w = malloc(sizeof *w);
    int r = w ? find_or_enqueue(all, argv, key, stamp, is_guest, &c) : -ENOMEM;
    if (r < 0) {
        free(w);
        return r;
    }
    *w = (struct child_waiter){.child = c, .fn = fn, .user = user};
    LIST_INSERT_HEAD(&c->waiters, w, link);
    /* if the child cannot be started, start_queued answers the waiter and frees the child */
    start_queued(all);
    *ret = find_pending(all, key, stamp) ? w : NULL;
    return 0;
}

/* Cancels a waiter. A running child continues, so that its answer is cached; a queued child without
 * waiters is dropped. */
void child_waiter_cancel(struct child_waiter *w)
{
    struct child *c = w->child;
    LIST_REMOVE(w, link);
    free(w);
    if (LIST_EMPTY(&c->waiters) && c->pid == 0) {
        remove_pending(c);
        child_free(c);
    }
}

int children_new(struct loop *loop, const struct children_options *options, struct children **ret)
{
    struct children *all = calloc(1, sizeof *all);
    if (!all)
        return -ENOMEM;
    all->loop = loop;
    all->options = *options;
    TAILQ_INIT(&all->pending);
    TAILQ_INIT(&all->ended);
    *ret = all;
    return 0;
}

void children_free(struct children *all)
{
    if (!all)
        return;
    while (!TAILQ_EMPTY(&all->pending)) {
        struct child *c = TAILQ_FIRST(&all->pending);
        if (c->pid > 0) {
            struct pollfd p = {.fd = c->pidfd, .events = POLLIN};
            kill(-c->pid, SIGKILL);
            poll(&p, 1, REAP_MS); /* a child that waits for a hanging disk may not end */
            waitpid(c->pid, NULL, WNOHANG);
        }
        while (!LIST_EMPTY(&c->waiters)) {
            struct child_waiter *w = LIST_FIRST(&c->waiters);
            LIST_REMOVE(w, link);
            free(w);
        }
        remove_pending(c);
        child_free(c);
    }
    while (!TAILQ_EMPTY(&all->ended))
        cache_drop(all, TAILQ_FIRST(&all->ended));
    free(all);
}
