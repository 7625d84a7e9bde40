/* Child processes that read recordings for the server. */
#include "server/http/children.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <unistd.h>

#include "server/jobs/command.h"

enum { ARGS_MAX = 16, PRIORITY = 10 };

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
    char *args[ARGS_MAX + 2];
    LIST_HEAD(, child_waiter) waiters;
    bool is_guest; /* true if only guests (clients other than the owner) wait for the answer */
    struct command *command; /* NULL before the child starts and after it has ended */
};

struct children {
    struct loop *loop;
    struct children_options options;
    /* running children, then queued children in the order in which they will start */
    TAILQ_HEAD(child_list, child) pending;
    unsigned running, queued;
};

static void child_free(struct child *c)
{
    command_release(c->command, true);
    for (int i = 1; c->args[i]; i++)
        free(c->args[i]);
    free(c->key);
    free(c);
}

static struct child *find_pending(const struct children *all, const char *key)
{
    struct child *c;
    TAILQ_FOREACH(c, &all->pending, link)
    {
        if (strcmp(c->key, key) == 0)
            return c;
    }
    return NULL;
}

/* ---- the end of a child ---- */

static void remove_pending(struct child *c)
{
    TAILQ_REMOVE(&c->all->pending, c, link);
    if (c->command)
        c->all->running--;
    else
        c->all->queued--;
}

static void start_queued(struct children *all);

/* Calls the waiters of a child that has ended, and frees the child. Waiters may call children_ask
 * and child_waiter_cancel, so the child is removed from its list first. */
static void child_end(struct child *c, int status, const char *output, size_t len)
{
    struct children *all = c->all;
    remove_pending(c);
    c->command = NULL;
    while (!LIST_EMPTY(&c->waiters)) {
        struct child_waiter *w = LIST_FIRST(&c->waiters);
        LIST_REMOVE(w, link);
        w->fn(w->user, status, output, len);
        free(w);
    }
    child_free(c);
    start_queued(all);
}

static void on_command_done(void *user, int status, const char *output, size_t len,
                            const char *error)
{
    child_end(user, status, len ? output : error, len ? len : strlen(error));
}

/* ---- the start ---- */

static int child_start(struct child *c)
{
    const struct children_options *o = &c->all->options;
    const struct command_setup setup = {.program = o->program,
                                        .argv = c->args,
                                        .env = environ,
                                        .limit_ns = o->limit_ns,
                                        .output_max = o->output_max,
                                        .lock_fd = -1,
                                        .nice = PRIORITY};
    int r = command_start(c->all->loop, &setup, on_command_done, c, &c->command);
    if (r == 0) {
        c->all->running++;
        c->all->queued--;
    }
    return r;
}

/* Starts queued children. Each round begins at the head of the list, because a failed start calls
 * waiters, which may change the list. */
static void start_queued(struct children *all)
{
    while (all->running < all->options.at_once && all->queued > 0) {
        struct child *c = TAILQ_FIRST(&all->pending);
        while (c->command)
            c = TAILQ_NEXT(c, link);
        int r = child_start(c);
        if (r < 0)
            child_end(c, r, "", 0);
    }
}

/* ---- requests ---- */

static struct child *child_new(struct children *all, const char *const *argv, const char *key)
{
    struct child *c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (struct child){.all = all, .key = strdup(key)};
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
        guests += !c->command && c->is_guest;
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
    while (at && (is_guest || at->command || !at->is_guest))
        at = TAILQ_NEXT(at, link);
    if (at)
        TAILQ_INSERT_BEFORE(at, c, link);
    else
        TAILQ_INSERT_TAIL(list, c, link);
    c->all->queued++;
}

static int find_or_enqueue(struct children *all, const char *const *argv, const char *key,
                           bool is_guest, struct child **ret)
{
    struct child *c = find_pending(all, key);
    if (!c) {
        if (!queue_has_room(all, is_guest))
            return -EAGAIN;
        c = child_new(all, argv, key);
        if (!c)
            return -ENOMEM;
        enqueue(c, is_guest);
    } else if (!c->command && c->is_guest && !is_guest) {
        remove_pending(c);
        enqueue(c, false);
    }
    *ret = c;
    return 0;
}

int children_ask(struct children *all, const char *const *argv, const char *key, bool is_guest,
                 child_done_fn *fn, void *user, struct child_waiter **ret)
{
    struct child *c;
    *ret = NULL;
    struct child_waiter *w = malloc(sizeof *w);
    int r = w ? find_or_enqueue(all, argv, key, is_guest, &c) : -ENOMEM;
    if (r < 0) {
        free(w);
        return r;
    }
    *w = (struct child_waiter){.child = c, .fn = fn, .user = user};
    LIST_INSERT_HEAD(&c->waiters, w, link);
    /* if the child cannot be started, start_queued answers the waiter and frees the child */
    start_queued(all);
    *ret = find_pending(all, key) ? w : NULL;
    return 0;
}

/* Cancels a waiter. A queued child without waiters is dropped. A running child without waiters
 * continues, because killing a child that waits for a disk could block. */
void child_waiter_cancel(struct child_waiter *w)
{
    struct child *c = w->child;
    LIST_REMOVE(w, link);
    free(w);
    if (LIST_EMPTY(&c->waiters) && !c->command) {
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
    *ret = all;
    return 0;
}

void children_free(struct children *all)
{
    if (!all)
        return;
    while (!TAILQ_EMPTY(&all->pending)) {
        struct child *c = TAILQ_FIRST(&all->pending);
        while (!LIST_EMPTY(&c->waiters)) {
            struct child_waiter *w = LIST_FIRST(&c->waiters);
            LIST_REMOVE(w, link);
            free(w);
        }
        remove_pending(c);
        child_free(c);
    }
    free(all);
}
