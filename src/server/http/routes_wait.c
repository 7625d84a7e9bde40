/* Waiters: requests that wait for a job's state, new log output, or its supervisor's answer. */
#include <stdlib.h>

#include "base/clock.h"
#include "base/loop.h"
#include "server/http/routes_private.h"
#include "server/jobs/workers.h"

static void set_wait_timer(struct routes *routes)
{
    uint64_t next_ns = UINT64_MAX;
    struct route_waiter *w;
    LIST_FOREACH(w, &routes->waiters, link)
    {
        uint64_t at_ns = w->task ? UINT64_MAX : w->is_due ? 0 : w->until_ns;
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    if (next_ns == UINT64_MAX)
        loop_disarm_timer(routes->timer);
    else
        loop_set_timer(routes->timer, next_ns, 0);
}

static void waiter_free(struct route_waiter *w)
{
    const struct route_call *c = w->call;
    task_cancel(w->task);
    LIST_REMOVE(w, link);
    http_share_return(&c->routes->waiting[http_is_unix(c->r)], http_rank(c->r), 1);
    free(w);
}

static bool try_answer(struct route_waiter *w, bool is_last)
{
    static route_wait_fn *const answers[] = {[WAIT_STATE] = route_answer_state,
                                             [WAIT_LOG] = route_answer_log,
                                             [WAIT_CHECKPOINT] = route_answer_checkpoint};
    return answers[w->what](w, is_last);
}

static void on_gone(void *user)
{
    struct route_waiter *w = user;
    struct routes *routes = w->call->routes;
    waiter_free(w);
    set_wait_timer(routes);
}

static void on_wait_timer(void *user, uint64_t now_ns)
{
    struct routes *routes = user;
    for (struct route_waiter *w = LIST_FIRST(&routes->waiters), *next; w; w = next) {
        next = LIST_NEXT(w, link);
        if (w->task || (!w->is_due && w->until_ns > now_ns))
            continue;
        w->is_due = false;
        if (try_answer(w, w->until_ns <= now_ns))
            waiter_free(w);
    }
    set_wait_timer(routes);
}

void route_wait_end(struct route_waiter *w)
{
    on_gone(w);
}

void route_wait_more(struct route_waiter *w)
{
    set_wait_timer(w->call->routes);
}

void route_wait(const struct route_call *c, const struct route_waiter *waiter, double seconds)
{
    struct routes *routes = c->routes;
    struct http_share *share = &routes->waiting[http_is_unix(c->r)];
    struct route_waiter wanted = *waiter;
    wanted.call = c;
    wanted.until_ns = clock_mono_ns() + (uint64_t)(seconds * (double)NS_PER_S);
    if (wanted.what != WAIT_LOG && try_answer(&wanted, seconds <= 0))
        return;
    bool has_room = http_share_take(share, http_rank(c->r), 1, ROUTES_WAITERS_MAX);
    struct route_waiter *w = has_room ? malloc(sizeof *w) : NULL;
    if (!w) {
        if (has_room)
            http_share_return(share, http_rank(c->r), 1);
        if (wanted.what == WAIT_CHECKPOINT)
            try_answer(&wanted, true);
        else
            http_answer_error(c->r, 429, "too many waiting requests; try again later");
        return;
    }
    *w = wanted;
    LIST_INSERT_HEAD(&routes->waiters, w, link);
    http_park(c->r, on_gone, w);
    set_wait_timer(routes);
}

/* Wakes the waiters of a job. The caller may be in the middle of a change to the job. Waiters are
 * therefore answered in the next round of the loop, when the change is on disk. */
void route_wake(struct routes *routes, int64_t id, enum route_wait what)
{
    bool is_any = false;
    struct route_waiter *w;
    LIST_FOREACH(w, &routes->waiters, link)
    {
        if (w->call->id == id && w->what == what)
            is_any = w->is_due = true;
    }
    if (is_any)
        set_wait_timer(routes);
}

int route_wait_init(struct routes *routes)
{
    int r = loop_add_timer(routes->options.loop, 0, 0, on_wait_timer, routes, &routes->timer);
    if (r == 0)
        loop_disarm_timer(routes->timer);
    return r;
}
