/* Requests that wait until their job changes, or until its run folder has been read. */
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/loop.h"
#include "server/http/routes_private.h"
#include "server/jobs/workers.h"

/* ---- waiting for a change of a job ---- */

struct route_waiter {
    LIST_ENTRY(route_waiter) link;
    struct route_call *call;
    enum route_wait what;
    bool is_due; /* the job has changed, so the handler must be called again */
};

static void set_wait_timer(struct routes *routes)
{
    uint64_t next_ns = UINT64_MAX;
    struct route_waiter *w;
    LIST_FOREACH(w, &routes->waiters, link)
    {
        uint64_t at_ns = w->is_due ? 0 : w->call->until_ns;
        next_ns = at_ns < next_ns ? at_ns : next_ns;
    }
    if (next_ns == UINT64_MAX)
        loop_disarm_timer(routes->timer);
    else
        loop_set_timer(routes->timer, next_ns, 0);
}

static void waiter_free(struct route_waiter *w)
{
    struct route_call *c = w->call;
    LIST_REMOVE(w, link);
    http_share_return(&c->routes->waiting[http_is_unix(c->r)], http_rank(c->r), 1);
    free(w);
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
        struct route_call *c = w->call;
        next = LIST_NEXT(w, link);
        if (!w->is_due && c->until_ns > now_ns)
            continue;
        c->is_last = c->until_ns <= now_ns;
        waiter_free(w);
        c->route->fn(c);
    }
    set_wait_timer(routes);
}

void route_wait(struct route_call *c, enum route_wait what, double seconds, bool is_due)
{
    struct routes *routes = c->routes;
    struct http_share *share = &routes->waiting[http_is_unix(c->r)];
    if (!c->until_ns)
        c->until_ns = clock_mono_ns() + (uint64_t)(seconds * (double)NS_PER_S);
    bool has_room = http_share_take(share, http_rank(c->r), 1, ROUTES_WAITERS_MAX);
    struct route_waiter *w = has_room ? malloc(sizeof *w) : NULL;
    if (w) {
        *w = (struct route_waiter){.call = c, .what = what, .is_due = is_due};
        LIST_INSERT_HEAD(&routes->waiters, w, link);
        http_park(c->r, on_gone, NULL, w);
        set_wait_timer(routes);
        return;
    }
    if (has_room)
        http_share_return(share, http_rank(c->r), 1);
    c->is_last = true;
    if (what == WAIT_CHECKPOINT)
        c->route->fn(c);
    else
        http_answer_error(c->r, 429, "too many waiting requests; try again later");
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

/* ---- reading a run folder ---- */

static void on_reader_gone(void *user)
{
    struct route_reading *r = user;
    task_cancel(r->task);
}

static void on_reader_late(void *user)
{
    struct route_reading *r = user;
    http_answer_error(r->call->r, 503, "the run folder of job %lld is unreachable; try again later",
                      (long long)r->call->id);
    task_cancel(r->task);
}

static void on_reading_done(struct jobs_reading *base)
{
    struct route_reading *r = (struct route_reading *)base;
    r->answer(r);
}

static void reading_free(struct jobs_reading *base)
{
    struct route_reading *r = (struct route_reading *)base;
    if (r->fini)
        r->fini(r);
    free(r);
}

void route_read(struct route_call *c, struct route_reading *r)
{
    if (!r) {
        http_answer_error(c->r, 503, "out of memory");
        return;
    }
    struct task *task;
    r->call = c;
    r->base.done = on_reading_done;
    r->base.free = reading_free;
    http_park(c->r, on_reader_gone, on_reader_late, r);
    int result = jobs_read(c->routes->options.jobs, c->id, &r->base, &task);
    if (result < 0)
        http_answer_error(c->r, 503, "cannot read the run folder: %s", strerror(-result));
    else if (task)
        r->task = task;
}
