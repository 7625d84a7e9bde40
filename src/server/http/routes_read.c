/* Requests for files in a run folder. The folder may be on a file system that hangs, so it is read
 * in a thread, and the request is parked. */
#include <stdlib.h>
#include <string.h>

#include "server/http/routes_private.h"
#include "server/jobs/workers.h"

static void on_reader_gone(void *user)
{
    struct route_reading *r = user;
    task_cancel(r->task);
}

void route_answer_silence(const struct route_call *c)
{
    http_answer_error(c->r, 503, "the run folder of job %lld does not answer; try again later",
                      (long long)c->id);
}

static void on_reading_done(struct jobs_reading *base, int result)
{
    struct route_reading *r = (struct route_reading *)base;
    if (result < 0)
        route_answer_silence(r->call);
    else
        r->answer(r);
}

static void reading_free(struct jobs_reading *base)
{
    struct route_reading *r = (struct route_reading *)base;
    if (r->fini)
        r->fini(r);
    free(r);
}

void route_read(const struct route_call *c, struct route_reading *r)
{
    if (!r) {
        http_answer_error(c->r, 503, "out of memory");
        return;
    }
    struct task *task;
    r->call = c;
    r->base.done = on_reading_done;
    r->base.free = reading_free;
    http_park(c->r, on_reader_gone, r);
    int result = jobs_read(c->routes->options.jobs, c->id, &r->base, &task);
    if (result < 0)
        http_answer_error(c->r, 503, "cannot read the run folder: %s", strerror(-result));
    else if (task)
        r->task = task;
}
