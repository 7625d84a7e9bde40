/* Requests that wait until a job is in some state, its log has grown or its supervisor answers. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/loop.h"
#include "server/http/routes_private.h"

static void set_timer(struct routes *routes)
{
    uint64_t next_ns = UINT64_MAX;
    for (const struct route_waiter *w = routes->waiters; w; w = w->next) {
        uint64_t at_ns = w->is_due ? 0 : w->until_ns;
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    if (next_ns == UINT64_MAX)
        loop_disarm_timer(routes->timer);
    else
        loop_set_timer(routes->timer, next_ns, 0);
}

static void waiter_free(struct route_waiter *w)
{
    struct routes *routes = w->routes;
    if (w->prev)
        w->prev->next = w->next;
    else
        routes->waiters = w->next;
    if (w->next)
        w->next->prev = w->prev;
    http_share_return(&routes->waiting[http_is_unix(w->r)], http_rank(w->r), 1);
    free(w);
}

static void try_answer(struct route_waiter *w, bool is_last)
{
    bool is_done = w->what == WAIT_LOG     ? route_log_answer(w->routes, w->r, w, is_last)
                   : w->what == WAIT_STATE ? route_state_answer(w->routes, w->r, w, is_last)
                                           : route_checkpoint_answer(w->routes, w->r, w, is_last);
    w->is_due = false;
    if (is_done)
        waiter_free(w);
}

static void on_gone(void *user)
{
    struct route_waiter *w = user;
    struct routes *routes = w->routes;
    waiter_free(w);
    set_timer(routes);
}

static void on_timer(void *user, uint64_t now_ns, uint64_t missed)
{
    (void)missed;
    struct routes *routes = user;
    for (struct route_waiter *w = routes->waiters, *next; w; w = next) {
        next = w->next;
        if (w->is_due || w->until_ns <= now_ns)
            try_answer(w, w->until_ns <= now_ns);
    }
    set_timer(routes);
}

void route_wait(const struct route_call *c, const struct route_waiter *wish)
{
    struct routes *routes = c->routes;
    struct http_share *share = &routes->waiting[http_is_unix(c->r)];
    bool has_room = http_share_take(share, http_rank(c->r), 1, ROUTES_WAITERS_MAX);
    struct route_waiter *w = has_room ? malloc(sizeof(*w)) : NULL;
    if (!w) {
        if (has_room)
            http_share_return(share, http_rank(c->r), 1);
        if (wish->what == WAIT_ANSWER)
            route_checkpoint_answer(routes, c->r, wish, true);
        else
            http_answer_error(c->r, 429, "too many waiting requests; try again later");
        return;
    }
    *w = *wish;
    w->routes = routes;
    w->r = c->r;
    w->prev = NULL;
    w->next = routes->waiters;
    if (w->next)
        w->next->prev = w;
    routes->waiters = w;
    http_park(c->r, on_gone, w);
    set_timer(routes);
}

/* Whoever brings the news is in the middle of something: they are answered in the loop's next
 * round, when it is on disk. */
void route_wake(struct routes *routes, int64_t id, enum route_wait what)
{
    bool is_any = false;
    for (struct route_waiter *w = routes->waiters; w; w = w->next) {
        if (w->id == id && w->what == what)
            is_any = w->is_due = true;
    }
    if (is_any)
        set_timer(routes);
}

int route_wait_init(struct routes *routes)
{
    int r = loop_add_timer(routes->options.loop, 0, 0, on_timer, routes, &routes->timer);
    if (r == 0)
        loop_disarm_timer(routes->timer);
    return r;
}
